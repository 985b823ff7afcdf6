# SQLite: a database in write-ahead mode, which maps its index as shared memory.
. "$SCENES/prelude.sh"
"${run[@]}" sqlite3 test.db <<'S'
PRAGMA journal_mode = WAL;
PRAGMA wal_autocheckpoint = 50;
CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER);
CREATE INDEX by_b ON t (b);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO t SELECT i, hex(i * 7919), i % 997 FROM n;
BEGIN; UPDATE t SET a = a || 'x' WHERE b < 100; COMMIT;
DELETE FROM t WHERE b > 900;
SELECT count(*), sum(b), max(length(a)) FROM t;
PRAGMA integrity_check;
S
"${run[@]}" sqlite3 test.db .dump | sha256sum
sqlite3 test.db "PRAGMA integrity_check; SELECT count(*), sum(id) FROM t"
cp test.db out/
