cat "${ORCH_IN:-/in}/spec.xml"; ls tree/shelf/features
#---
cat > out/plan.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<plan xmlns="urn:orch:plan:1">
  <task id="T1" title="Tags of a book">
    <description>The feature module tags.</description>
    <requirement ref="R7"/>
    <write path="shelf/features/tags.py"/><write path="tests/test_tags.py"/>
  </task>
  <task id="T2" title="Find by tag">
    <description>The feature module tagged; it reads the table of the module tags.</description>
    <requirement ref="R8"/>
    <after ref="T1"/>
    <write path="shelf/features/tagged.py"/>
  </task>
</plan>
END
