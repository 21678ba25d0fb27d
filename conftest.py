# SPDX-License-Identifier: Apache-2.0
"""What holds for every test of the tree."""

import signal

# A run that a script has put into the background has SIGINT ignored, and so would all programs
# that tests start and interrupt: they would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
