print("1..1\nok 1")
while True:
    print("# " + "x" * 4000)
