"""Drawing: lines of spans, tables, curves of dots, pictures. Pure, but for the files of pictures."""
