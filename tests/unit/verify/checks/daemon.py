# Leaves a process in a session of its own that would report success later.
import os, sys, time

if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execv("/usr/bin/python3", ["python3", "-c", "import time\ntime.sleep(1)\nprint('1..1\\nok 1', flush=True)\ntime.sleep(600)", "orch-test-daemon"])
time.sleep(0.2)
