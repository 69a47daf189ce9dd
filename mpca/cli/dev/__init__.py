"""`mpca dev`: real daemons to try things out on and to test with, on this machine. No part of a run needs it."""
