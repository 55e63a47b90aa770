cat > out/spec.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<spec xmlns="urn:orch:spec:1" name="greet" title="A greeting">
  <summary>A command line tool in POSIX shell.</summary>
  <product kind="cli"><start><arg>sh</arg><arg>greet.sh</arg></start></product>
  <requirement id="R1" title="Greet">With one argument, NAME, it prints "Hello, NAME!" and a newline, and exits with 0. With none it
prints nothing on the standard output and exits with 2.</requirement>
  <requirement id="R2" title="Version">With the argument --version it prints "greet 1.0.0" and a newline, and exits with
0.</requirement>
</spec>
END
