import sys

print("first line of many\nno module named shelf\x1b[31m", file=sys.stderr)
sys.exit(3)
