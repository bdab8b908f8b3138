--- The statements of the SQLite store. A statement begins with its name.

-- statement: MIGRATION_1
--- Each entry takes a file from the version of its place to the next; entries are added, never changed.
CREATE TABLE runs(
    number INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    seq INTEGER NOT NULL,
    updated_at REAL NOT NULL,
    status TEXT NOT NULL,
    fence INTEGER NOT NULL,
    host TEXT,
    pid INTEGER,
    started REAL,
    worker INTEGER,
    renewed_at REAL NOT NULL,
    created_at REAL NOT NULL,
    parent TEXT NOT NULL,
    objective TEXT NOT NULL
);
CREATE INDEX runs_by_age ON runs(created_at);
CREATE INDEX runs_by_parent ON runs(parent, created_at);
CREATE TABLE events(
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY(run, seq)
) WITHOUT ROWID;
CREATE TABLE blobs(digest TEXT PRIMARY KEY NOT NULL, data BLOB NOT NULL);
CREATE TABLE run_blobs(digest TEXT NOT NULL, run TEXT NOT NULL, PRIMARY KEY(digest, run)) WITHOUT ROWID;
CREATE TABLE inbox(
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    data BLOB NOT NULL,
    answer BLOB
);
CREATE INDEX inbox_open ON inbox(run, number) WHERE answer IS NULL;

-- statement: MIGRATION_2
ALTER TABLE runs DROP COLUMN seq;
ALTER TABLE runs DROP COLUMN updated_at;

-- statement: MIGRATION_3
CREATE INDEX run_blobs_by_run ON run_blobs(run);
CREATE INDEX inbox_by_run ON inbox(run);
CREATE INDEX runs_by_status ON runs(status, created_at);

-- statement: CREATE
INSERT INTO runs(run, status, objective, parent, created_at, host, pid, started, worker, fence, renewed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(run) DO NOTHING

-- statement: NEXT
--- Whether a batch may come next. Histories have no gaps: its place is free behind what is there, or it is not next. (One
--- that looks for the largest number instead takes as long as all the rest of an append.)
SELECT 1 FROM runs WHERE run = ?1 AND fence = ?2
    AND (?3 = 0 OR EXISTS(SELECT 1 FROM events WHERE run = ?1 AND seq = ?3))
    AND NOT EXISTS(SELECT 1 FROM events WHERE run = ?1 AND seq = ?3 + 1)

-- statement: PLACE
SELECT fence, ifnull((SELECT max(seq) FROM events WHERE run = ?1), 0) FROM runs WHERE run = ?1

-- statement: MARK
UPDATE runs SET status = ifnull(?, status), objective = ifnull(?, objective) WHERE run = ?

-- statement: EVENT
INSERT INTO events(run, seq, at, data) VALUES (?, ?, ?, ?)

-- statement: BLOB
--- What is there and differs is damaged: a content's name is its digest. Whoever brings it again mends it.
INSERT INTO blobs(digest, data) VALUES (?, ?)
ON CONFLICT(digest) DO UPDATE SET data = excluded.data WHERE data IS NOT excluded.data

-- statement: RUN_BLOB
INSERT INTO run_blobs(digest, run) VALUES (?, ?) ON CONFLICT DO NOTHING

-- statement: READ
SELECT seq, at, data FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?

-- statement: HEADS
SELECT run, status, objective, parent, created_at, host, pid, started, worker, fence, renewed_at,
    (SELECT max(seq) FROM events WHERE events.run = runs.run),
    (SELECT at FROM events WHERE events.run = runs.run ORDER BY seq DESC LIMIT 1)

-- statement: HEAD
SELECT run, status, objective, parent, created_at, host, pid, started, worker, fence, renewed_at,
    (SELECT max(seq) FROM events WHERE events.run = runs.run),
    (SELECT at FROM events WHERE events.run = runs.run ORDER BY seq DESC LIMIT 1)
FROM runs WHERE run = ?

-- statement: CLAIM
UPDATE runs SET host = ?, pid = ?, started = ?, worker = ?, renewed_at = ?, fence = fence + 1
WHERE run = ? AND (host IS NULL OR fence = ?) RETURNING fence

-- statement: RENEW
UPDATE runs SET renewed_at = ? WHERE run = ? AND fence = ? AND host IS NOT NULL

-- statement: RELEASE
UPDATE runs SET host = NULL, pid = NULL, started = NULL, worker = NULL WHERE run = ? AND fence = ?

-- statement: POST
INSERT INTO inbox(run, data) SELECT run, ? FROM runs WHERE run = ? RETURNING number

-- statement: INBOX
SELECT number, data FROM inbox WHERE run = ? AND answer IS NULL ORDER BY number

-- statement: ANSWER
UPDATE inbox SET answer = ? WHERE run = ? AND number = ? AND answer IS NULL

-- statement: ANSWERED
SELECT answer FROM inbox WHERE run = ? AND number = ?

-- statement: SWEEP
--- A content goes when every run that refers to it completed long enough ago.
DELETE FROM blobs WHERE digest IN (
    SELECT digest FROM run_blobs JOIN runs USING (run)
    GROUP BY digest HAVING min(status = 'completed' AND created_at < ?1 AND
        ifnull((SELECT at FROM events WHERE events.run = runs.run ORDER BY seq DESC LIMIT 1), created_at) < ?1)
)

-- statement: OLD
--- Whether there can be any such: a store whose runs are young, or swept already, need not be looked through.
SELECT 1 FROM runs WHERE created_at < ? AND status = 'completed'
    AND EXISTS(SELECT 1 FROM run_blobs WHERE run_blobs.run = runs.run) LIMIT 1

-- statement: FORGET
DELETE FROM run_blobs WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.digest = run_blobs.digest)

-- statement: NEWS
SELECT ifnull((SELECT max(seq) FROM events WHERE run = ?1), 0),
    EXISTS(SELECT 1 FROM inbox WHERE run = ?1 AND answer IS NULL)

-- statement: SEEN
SELECT 1 FROM runs WHERE run = ?1 AND fence = ?2 AND status = ?3 AND host IS NULL
    AND ifnull((SELECT max(seq) FROM events WHERE events.run = runs.run), 0) = ?4

-- statement: CHILDREN
SELECT run FROM runs WHERE parent = ?

-- statement: NAMED
DELETE FROM run_blobs WHERE run = ? RETURNING digest

-- statement: LOOSE
DELETE FROM blobs WHERE digest = ? AND NOT EXISTS (SELECT 1 FROM run_blobs WHERE run_blobs.digest = blobs.digest)

-- statement: DRIVEN
--- Every run that has events, by steps over the index: reading each event would take as long as there are events.
WITH RECURSIVE driven(run) AS (
    SELECT min(run) FROM events
    UNION ALL SELECT (SELECT min(run) FROM events WHERE events.run > driven.run) FROM driven WHERE run IS NOT NULL
)
SELECT run FROM driven WHERE run IS NOT NULL AND run NOT IN (SELECT run FROM runs)

-- statement: NO_RUN
FROM {table} WHERE run NOT IN (SELECT run FROM runs)
    AND NOT EXISTS (SELECT 1 FROM events WHERE events.run = {table}.run)

-- statement: NO_NAME
FROM blobs WHERE digest NOT IN (
    SELECT digest FROM run_blobs WHERE run IN (SELECT run FROM runs)
        OR EXISTS (SELECT 1 FROM events WHERE events.run = run_blobs.run)
)
