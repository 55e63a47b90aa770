import time

print("1..1\nok 1", flush=True)
time.sleep(600)
