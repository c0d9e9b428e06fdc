"""Values that one program stores in a bucket or stream and others read."""
