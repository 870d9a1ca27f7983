"""DISK replicas below a Master's `root_fs_dir`: the files, what makes them and reads them."""
