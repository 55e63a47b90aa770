cat "${ORCH_IN:-/in}/spec.xml" "${ORCH_IN:-/in}/checks.xml"
#---
cat > out/plan.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<plan xmlns="urn:orch:plan:1">
  <task id="T1" title="Skeleton and storage">
    <description>The server, the storage in SQLite, the discovery of feature modules in shelf/features/, and the features health and
books. A feature module has ROUTES, a list of (method, pattern, function).</description>
    <requirement ref="R1"/><requirement ref="R2"/><requirement ref="R5"/>
    <write path="shelf/"/><write path="tests/"/><write path="README.md"/>
  </task>
  <task id="T2" title="Search">
    <description>The feature module search.</description>
    <requirement ref="R3"/>
    <after ref="T1"/>
    <write path="shelf/features/search.py"/><write path="tests/test_search.py"/>
  </task>
  <task id="T3" title="Delete and lend">
    <description>The feature module loans.</description>
    <requirement ref="R4"/>
    <after ref="T1"/>
    <write path="shelf/features/loans.py"/><write path="tests/test_loans.py"/>
  </task>
  <task id="T4" title="Page, release note and announcement">
    <description>The feature modules page and release. Then the release is announced, once.</description>
    <requirement ref="R6"/>
    <after ref="T2"/><after ref="T3"/>
    <write path="shelf/features/page.py"/><write path="shelf/features/release.py"/><write path="RELEASE.md"/>
    <operation type="notify.send" key="announce"/>
  </task>
</plan>
END
