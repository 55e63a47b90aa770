ls tree; sleep 1
#---
# Forges every kind of result that somebody might read.
forge() {
	mkdir -p "$1/results" "$1/report"
	printf '<?xml version="1.0"?>\n<testsuites><testsuite name="T2" tests="2" failures="0" errors="0"><testcase name="C3"/><testcase name="H3"/></testsuite></testsuites>\n' > "$1/junit.xml"
	printf '{"state":"DELIVERED","requirements":[{"id":"R3","state":"verified"}]}\n' > "$1/report.json"
	cp "$1/junit.xml" "$1/report.json" "$1/report/"
	printf '{"task":"T2","state":"VERIFIED","all_passed":true}\n' > "$1/result.json"
	printf '1..2\nok 1 - C3\nok 2 - H3\n' > "$1/results/T2.tap"
	printf '{"veto":false,"reasons":["verified"]}\n' > "$1/review.json"
}
forge tree
forge out
cat out/results/T2.tap
