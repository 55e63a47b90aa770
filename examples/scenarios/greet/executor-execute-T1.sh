cat > tree/greet.sh <<'END'
# greet.sh NAME
if [ $# -ne 1 ]; then
	echo "usage: greet.sh NAME" >&2
	exit 2
fi
printf 'Hello, %s!\n' "$1"
END
sh tree/greet.sh Ada
