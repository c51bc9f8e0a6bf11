"""The launcher of a host: joins the other hosts of a run, then starts and watches the training process of this host."""
