import sys, time

print("still thinking", file=sys.stderr, flush=True)
time.sleep(600)
