"""What the TPU runtime reports of its cores, read from outside the training processes"""
