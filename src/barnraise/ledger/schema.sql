-- The ledger of a run: every decision of its controller, one row each, in the order of `id` over all tables.
-- A column holds the field of the same name of a decision (barnraise/ledger/decisions.py), or of a group of its fields;
-- structured fields are JSON.
-- `epoch` counts the controller processes of this run, `time` is the controller's clock in seconds.
-- A float that is not a number is NULL.
-- A ledger from before a column was thought of is read as if it held the column's default, and gets it when a controller
-- goes on with it (barnraise/ledger/schema.py): a column that is added here has a default, and is its table's last.

CREATE TABLE meta (                  -- schema, run, epoch, segment_number, segment_bytes
    key   TEXT PRIMARY KEY,
    value ANY
) STRICT;

CREATE TABLE nodes (                 -- a node was enrolled, took new keys, joined or is gone
    id      INTEGER PRIMARY KEY,
    epoch   INTEGER NOT NULL,
    time    REAL,
    node    TEXT NOT NULL,
    change  TEXT NOT NULL,           -- enrolled, rekeyed, joined, left, ended, killed, revoked
    reason  TEXT NOT NULL,
    key     TEXT NOT NULL,           -- CURVE public key
    session INTEGER NOT NULL,        -- drawn by each worker process: tells a restart from a reconnection
    profile TEXT,                    -- JSON: what the worker measured of its machine
    signer  TEXT NOT NULL DEFAULT '', -- Ed25519 public key, in hexadecimal digits; '': it signs nothing
    role    TEXT NOT NULL DEFAULT '', -- of an enrolled node: worker, helper; '': worker
    owner   TEXT NOT NULL DEFAULT '' -- of an enrolled node: equal for those of one network; '': it is by itself
) STRICT;

CREATE TABLE assignments (           -- a piece of work went to a node
    id            INTEGER PRIMARY KEY,
    epoch         INTEGER NOT NULL,
    time          REAL,
    assignment    INTEGER NOT NULL UNIQUE,
    node          TEXT NOT NULL,
    kind          TEXT NOT NULL,
    base          INTEGER NOT NULL,
    max_staleness INTEGER NOT NULL,
    tokens        INTEGER NOT NULL,
    local_steps   INTEGER NOT NULL,
    learning_rate REAL,
    rows          TEXT NOT NULL,     -- JSON: [[shard, start, stop], ...]
    parameters    TEXT NOT NULL,     -- JSON: [start, stop] of the flat vector
    cursor        INTEGER NOT NULL,
    rung          INTEGER NOT NULL,  -- how densely its contribution is compressed, 0 the least
    redo          INTEGER NOT NULL,  -- the assignment whose lost work this repeats, or 0
    compute       REAL DEFAULT 0,    -- seconds that it was expected to take
    fetch         REAL DEFAULT 0,    -- and those of its bytes down
    send          REAL DEFAULT 0,    -- and up
    compute_spread REAL DEFAULT 0,   -- standard deviation of the logarithm of the first
    link_spread   REAL DEFAULT 0,    -- and of the other two
    pace          REAL DEFAULT NULL, -- of a stateless task: what of a version's movement is one step's
    cohort        INTEGER NOT NULL DEFAULT 0 -- the cohort that it joins, named after its first assignment; 0: none is named
) STRICT;

CREATE TABLE contributions (         -- a result was accepted, refused or discarded: a contribution, or of another kind
    id         INTEGER PRIMARY KEY,
    epoch      INTEGER NOT NULL,
    time       REAL,
    assignment INTEGER NOT NULL,
    node       TEXT NOT NULL,
    verdict    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    base       INTEGER NOT NULL,
    version    INTEGER NOT NULL,     -- the newest published when it arrived
    staleness  INTEGER NOT NULL,
    tokens     INTEGER NOT NULL,
    steps      INTEGER NOT NULL,
    loss       REAL,                 -- nats a token
    norm       REAL,
    seconds    REAL,
    num_bytes  INTEGER NOT NULL,
    digest     TEXT NOT NULL,        -- SHA-256 of the payload
    parameters TEXT NOT NULL,
    weight     REAL,
    codec      INTEGER NOT NULL DEFAULT -1, -- that of the payload: a rung, or one more than all; -1: not known
    transcript TEXT DEFAULT NULL,    -- JSON, of a stateless task: the versions that it began with and took in
    signature  TEXT NOT NULL DEFAULT '', -- the node's (Ed25519), of what barnraise/trust/signatures.py says
    scale      REAL DEFAULT 1,       -- by which its update is multiplied: below 1 where it was shortened
    result     TEXT NOT NULL DEFAULT '', -- its kind, and that of its payload: update, finding, sketch; '': not known
    trust      REAL DEFAULT NULL     -- its node's in the weight; NULL: that at the verdict
) STRICT;

-- A contribution counts once, whatever happens to connections and processes.
CREATE UNIQUE INDEX contributions_accepted ON contributions (assignment) WHERE verdict = 'accepted';

CREATE TABLE versions (              -- a buffer closed; the made_ half is filled in when the parameters exist
    id            INTEGER PRIMARY KEY,
    epoch         INTEGER NOT NULL,
    time          REAL,
    version       INTEGER NOT NULL UNIQUE,
    contributions TEXT NOT NULL,     -- JSON: assignment ids, in the order of reduction
    num_nodes     INTEGER NOT NULL,
    tokens        INTEGER NOT NULL,
    reason        TEXT NOT NULL,
    rate          REAL NOT NULL,     -- multiplies the outer optimizer's learning rate
    scales        TEXT NOT NULL,     -- JSON: what each of several ranges of the parameters gets of that
    made_id       INTEGER,
    made_epoch    INTEGER,
    made_time     REAL,
    digest        TEXT,              -- SHA-256 of the parameters
    delta_bytes   INTEGER
) STRICT;

CREATE UNIQUE INDEX versions_made ON versions (made_id) WHERE made_id IS NOT NULL;

CREATE TABLE events (                -- anything else worth keeping
    id     INTEGER PRIMARY KEY,
    epoch  INTEGER NOT NULL,
    time   REAL,
    kind   TEXT NOT NULL,
    node   TEXT NOT NULL,
    detail TEXT NOT NULL             -- JSON object
) STRICT;

CREATE INDEX events_kind ON events (kind, id);

CREATE TABLE chain (                 -- the hash chain over the rows of all tables but this and meta (ledger/chain.py)
    id   INTEGER PRIMARY KEY,        -- the last row of a commit
    head TEXT NOT NULL               -- the chain's head after it
) STRICT;
