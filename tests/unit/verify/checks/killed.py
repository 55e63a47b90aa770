import os, signal

print("1..1\nok 1", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
