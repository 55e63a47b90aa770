find tree -type f | sort | xargs wc -l
#---
python3 -B - <<'END'
import json, os
files, reasons = 0, []
for folder, _, names in os.walk("tree"):
    for name in names:
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            source = file.read()
        files += 1
        if name.endswith(".py"):
            try:
                compile(source, path, "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as error:
                reasons.append("%s does not compile: %s" % (path, error))
veto = bool(reasons)
if not veto:
    reasons.append("read %d files; every module compiles, no reason for a veto" % files)
with open("out/review.json", "w") as file:
    json.dump({"veto": veto, "reasons": reasons}, file)
END
