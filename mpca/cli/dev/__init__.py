"""`mpca dev`: real daemons on this machine, to try mpca on and to test with. No run needs them."""
