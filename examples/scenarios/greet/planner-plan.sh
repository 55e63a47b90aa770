cat > out/plan.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<plan xmlns="urn:orch:plan:1">
  <task id="T1" title="The greeting">
    <description>greet.sh.</description>
    <requirement ref="R1"/>
    <write path="greet.sh"/>
  </task>
  <task id="T2" title="Version and announcement">
    <description>The argument --version. Then the release is announced, once.</description>
    <requirement ref="R2"/>
    <after ref="T1"/>
    <write path="greet.sh"/>
    <operation type="notify.send" key="announce"/>
  </task>
</plan>
END
