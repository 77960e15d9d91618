# A repository with a compiled program and a test, from the first commit to the diff, and nothing left of it.
set -e
mkdir /tmp/warm
cd /tmp/warm
git init -q
printf '#include <stdio.h>\nint main(void) { return puts("warm") < 0; }\n' > warm.c
printf 'warm: warm.c\n\t$(CC) -O2 -Wall -o $@ $<\n' > Makefile
printf 'import subprocess\ndef test_warm():\n    assert subprocess.check_output(["./warm"]) == b"warm\\n"\n' > test_warm.py
git add .
git commit -qm warm
make
python3 -m pytest -q
echo >> warm.c
git diff
rg --files-with-matches puts .
cd /
rm -rf /tmp/warm
