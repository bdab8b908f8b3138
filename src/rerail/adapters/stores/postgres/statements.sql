--- The statements of the Postgres store. A statement begins with its name.

-- statement: HEADS
SELECT run, seq, status, objective, parent, created_at, updated_at, host, pid, started, worker, fence,
    renewed_at - extract(epoch FROM clock_timestamp())::float8
FROM rerail.runs
WHERE (%(prefix)s::text = '' OR (run >= %(prefix)s AND run < %(end)s))
    AND (%(any_status)s OR status = ANY(%(status)s)) AND (%(parent)s::text IS NULL OR parent = %(parent)s)
    AND (%(at)s::float8 IS NULL OR (created_at <= %(at)s
        AND (created_at < %(at)s OR number < (SELECT number FROM rerail.runs WHERE run = %(last)s))))
ORDER BY created_at DESC, number DESC LIMIT %(limit)s

-- statement: HEAD
SELECT run, seq, status, objective, parent, created_at, updated_at, host, pid, started, worker, fence,
    renewed_at - extract(epoch FROM clock_timestamp())::float8
FROM rerail.runs
WHERE run = %(run)s

-- statement: CREATE
INSERT INTO rerail.runs(run, seq, status, objective, parent, created_at, updated_at, host, pid, started, worker,
    fence, renewed_at)
VALUES (%(run)s, 0, %(status)s, %(objective)s, %(parent)s, %(created_at)s, %(updated_at)s, %(host)s, %(pid)s,
    %(started)s, %(worker)s, %(fence)s, extract(epoch FROM clock_timestamp())::float8 + %(ago)s)
ON CONFLICT (run) DO NOTHING RETURNING 1

-- statement: ADVANCE
WITH head AS (
    UPDATE rerail.runs SET seq = %(after)s + %(count)s, updated_at = coalesce(%(at)s, updated_at),
        status = coalesce(%(status)s, status), objective = coalesce(%(objective)s, objective)
    WHERE run = %(run)s AND seq = %(after)s AND fence = %(fence)s RETURNING run
), rows AS (
    INSERT INTO rerail.events(run, seq, at, data)
    SELECT head.run, %(after)s + given.place, given.at, given.data
    FROM head, unnest(%(ats)s::float8[], %(datas)s::bytea[]) WITH ORDINALITY AS given(at, data, place)
)

-- statement: KEEP
, kept AS (
    INSERT INTO rerail.blobs(digest, data)
    SELECT given.digest, given.data
    FROM head, unnest(%(digests)s::text[], %(contents)b::bytea[]) AS given(digest, data)
    -- Locked in any case, so that no sweep takes it; what is there and differs is damaged, and is mended by this.
    ON CONFLICT (digest) DO UPDATE SET data = EXCLUDED.data WHERE blobs.data <> EXCLUDED.data
)

-- statement: NAME
, named AS (
    INSERT INTO rerail.run_blobs(digest, run)
    SELECT given.digest, head.run FROM head, unnest(%(digests)s::text[]) AS given(digest)
    ON CONFLICT DO NOTHING
)

-- statement: MAY
--- The same for those that are large: who has the content's row keeps it until the append. The run's is not held: its
--- lease is renewed meanwhile, and whether it may be written is found out by the append.
SELECT 1 FROM rerail.runs WHERE run = %(run)s AND seq = %(after)s AND fence = %(fence)s

-- statement: SOUND
SELECT octet_length(data) = %(size)s AND sha256(data) = %(sum)b FROM rerail.blobs WHERE digest = %(digest)s
FOR UPDATE

-- statement: DAMAGED
DELETE FROM rerail.blobs WHERE digest = %(digest)s

-- statement: COPY
COPY rerail.blobs(digest, data) FROM STDIN (FORMAT BINARY)

-- statement: TAKEN
SELECT 1 FROM head

-- statement: READ
SELECT seq, at, data FROM rerail.events WHERE run = %(run)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s

-- statement: CLAIM
UPDATE rerail.runs SET host = %(host)s, pid = %(pid)s, started = %(started)s, worker = %(worker)s,
    renewed_at = extract(epoch FROM clock_timestamp())::float8 + %(ago)s, fence = fence + 1
WHERE run = %(run)s AND (host IS NULL OR fence = %(over)s) RETURNING fence

-- statement: RENEW
UPDATE rerail.runs SET renewed_at = extract(epoch FROM clock_timestamp())::float8 + %(ago)s
WHERE run = %(run)s AND fence = %(fence)s AND host IS NOT NULL RETURNING 1

-- statement: RELEASE
UPDATE rerail.runs SET host = NULL, pid = NULL, started = NULL, worker = NULL
WHERE run = %(run)s AND fence = %(fence)s RETURNING status

-- statement: POST
INSERT INTO rerail.inbox(run, data) SELECT run, %(data)s FROM rerail.runs WHERE run = %(run)s RETURNING number

-- statement: INBOX
SELECT number, data FROM rerail.inbox WHERE run = %(run)s AND answer IS NULL ORDER BY number

-- statement: ANSWER
UPDATE rerail.inbox SET answer = %(data)s WHERE run = %(run)s AND number = %(number)s AND answer IS NULL

-- statement: ANSWERED
SELECT answer FROM rerail.inbox WHERE run = %(run)s AND number = %(number)s

-- statement: BLOB
SELECT octet_length(data), CASE WHEN octet_length(data) < %(large)s THEN data END
FROM rerail.blobs WHERE digest = %(digest)s

-- statement: LARGE_BLOB
SELECT data FROM rerail.blobs WHERE digest = %(digest)s

-- statement: SWEPT
--- A content goes when every run that refers to it completed long enough ago. Each statement sees what was written before
--- it began: whoever is about to name a content again holds its row, or that of their run, and is left alone; who comes
--- later waits for the sweep, and brings the content anew.
SELECT digest FROM rerail.run_blobs JOIN rerail.runs USING (run)
GROUP BY digest HAVING bool_and(status = 'completed' AND updated_at < %(before)s)

-- statement: OLD_RUNS
SELECT run FROM rerail.runs WHERE status = 'completed' AND updated_at < %(before)s
    AND run IN (SELECT run FROM rerail.run_blobs WHERE digest = ANY(%(digests)s)) FOR UPDATE SKIP LOCKED

-- statement: OLD_BLOBS
SELECT digest FROM rerail.blobs WHERE digest = ANY(%(digests)s) FOR UPDATE SKIP LOCKED

-- statement: SWEEP
WITH gone AS (
    DELETE FROM rerail.blobs WHERE digest = ANY(%(digests)s) AND NOT EXISTS (
        SELECT 1 FROM rerail.run_blobs WHERE run_blobs.digest = blobs.digest AND run <> ALL(%(runs)s)
    ) RETURNING digest
), forgotten AS (
    DELETE FROM rerail.run_blobs WHERE digest IN (SELECT digest FROM gone)
)
SELECT count(*) FROM gone

-- statement: NEWS
SELECT asked.run, coalesce(runs.seq, 0),
    EXISTS(SELECT 1 FROM rerail.inbox WHERE inbox.run = asked.run AND answer IS NULL)
FROM unnest(%(runs)s::text[]) AS asked(run) LEFT JOIN rerail.runs ON runs.run = asked.run

-- statement: TELL
SELECT pg_notify(%(channel)s, news) FROM unnest(%(news)s::text[]) AS told(news)

-- statement: MIGRATION_1
--- Each entry migrates a database from the version of its index to the next; entries are added, never changed.
CREATE TABLE rerail.runs(
    number bigint GENERATED ALWAYS AS IDENTITY,
    run text COLLATE "C" PRIMARY KEY,
    seq bigint NOT NULL,
    updated_at float8 NOT NULL,
    status text NOT NULL,
    fence bigint NOT NULL,
    host text,
    pid bigint,
    started float8,
    worker boolean,
    renewed_at float8 NOT NULL,
    created_at float8 NOT NULL,
    parent text COLLATE "C" NOT NULL,
    objective text NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX runs_by_age ON rerail.runs(created_at, number);
CREATE INDEX runs_by_parent ON rerail.runs(parent, created_at);
CREATE TABLE rerail.events(
    run text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    at float8 NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY(run, seq)
);
CREATE TABLE rerail.blobs(digest text PRIMARY KEY, data bytea NOT NULL);
CREATE TABLE rerail.run_blobs(digest text NOT NULL, run text COLLATE "C" NOT NULL, PRIMARY KEY(digest, run));
CREATE TABLE rerail.inbox(
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    answer bytea
);
CREATE INDEX inbox_open ON rerail.inbox(run, number) WHERE answer IS NULL;

-- statement: MIGRATION_2
--- Removal of a run asks for its contents and actions. Without these indexes it would scan the rows of all runs.
CREATE INDEX run_blobs_by_run ON rerail.run_blobs(run);
CREATE INDEX inbox_by_run ON rerail.inbox(run);

-- statement: SEEN
SELECT run, seq, fence, status, host FROM rerail.runs WHERE run = ANY(%(runs)s) ORDER BY run FOR UPDATE

-- statement: CHILDREN
SELECT run FROM rerail.runs WHERE parent = ANY(%(runs)s) AND run <> ALL(%(runs)s) LIMIT 1

-- statement: NAMED
DELETE FROM rerail.run_blobs WHERE run = ANY(%(runs)s) RETURNING digest

-- statement: HELD
SELECT digest FROM rerail.blobs WHERE digest = ANY(%(digests)s) FOR UPDATE SKIP LOCKED

-- statement: LOOSE
DELETE FROM rerail.blobs WHERE digest = ANY(%(digests)s)
    AND NOT EXISTS (SELECT 1 FROM rerail.run_blobs WHERE run_blobs.digest = blobs.digest) RETURNING digest

-- statement: DRIVEN
--- Every run that has events, by steps over the index: reading each event would take as long as there are events.
WITH RECURSIVE driven(run) AS (
    (SELECT run FROM rerail.events ORDER BY run LIMIT 1)
    UNION ALL
    SELECT (SELECT run FROM rerail.events WHERE events.run > driven.run ORDER BY run LIMIT 1)
    FROM driven WHERE run IS NOT NULL
)
SELECT run FROM driven WHERE run IS NOT NULL AND run NOT IN (SELECT run FROM rerail.runs)

-- statement: NO_NAME
SELECT digest FROM rerail.blobs WHERE NOT EXISTS (
    SELECT 1 FROM rerail.run_blobs WHERE run_blobs.digest = blobs.digest AND (
        EXISTS (SELECT 1 FROM rerail.runs WHERE runs.run = run_blobs.run)
        OR EXISTS (SELECT 1 FROM rerail.events WHERE events.run = run_blobs.run)
    )
)

-- statement: UNNAMED
DELETE FROM rerail.run_blobs WHERE digest = ANY(%(digests)s) AND run NOT IN (SELECT run FROM rerail.runs)
    AND NOT EXISTS (SELECT 1 FROM rerail.events WHERE events.run = run_blobs.run)

-- statement: ASKED
SELECT count(*) FROM rerail.inbox WHERE run NOT IN (SELECT run FROM rerail.runs)
    AND NOT EXISTS (SELECT 1 FROM rerail.events WHERE events.run = inbox.run)

-- statement: UNASKED
DELETE FROM rerail.inbox WHERE run NOT IN (SELECT run FROM rerail.runs)
    AND NOT EXISTS (SELECT 1 FROM rerail.events WHERE events.run = inbox.run) RETURNING number

-- statement: GONE_1
DELETE FROM rerail.events WHERE run = ANY(%(runs)s)

-- statement: GONE_2
DELETE FROM rerail.inbox WHERE run = ANY(%(runs)s)

-- statement: GONE_3
DELETE FROM rerail.runs WHERE run = ANY(%(runs)s)
