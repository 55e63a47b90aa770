import sys

print("1..1\nok 1")
sys.exit(1)
