-- A file as schema version 1 was written, for the test that reads it.
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    flow TEXT,
    version INTEGER NOT NULL DEFAULT 0,
    format INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0,
    status TEXT,
    current_step TEXT,
    owner TEXT,
    token INTEGER NOT NULL,
    holder TEXT,
    lease_until INTEGER,
    created_at INTEGER,
    updated_at INTEGER,
    expires_at INTEGER
) STRICT;
CREATE INDEX sessions_by_flow ON sessions (flow, id);
CREATE INDEX sessions_by_owner ON sessions (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX sessions_by_lease ON sessions (lease_until) WHERE holder IS NOT NULL;
CREATE INDEX sessions_by_expiry ON sessions (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE documents (
    session INTEGER PRIMARY KEY,
    doc TEXT NOT NULL
) STRICT;
CREATE TABLE archive (
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (key, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE fence (token INTEGER NOT NULL) STRICT;
INSERT INTO fence VALUES (0);
CREATE TRIGGER sessions_deleted AFTER DELETE ON sessions BEGIN
    DELETE FROM documents WHERE session = old.key;
    UPDATE fence SET token = max(token, old.token);
END;
INSERT INTO sessions VALUES (1, 'hotel-1', 'conformance', 3, 1, 4, 'waiting', 'Explore', NULL,
    3, NULL, NULL, 1767225600000, 1767225601000, NULL);
INSERT INTO documents VALUES (1, '{"_id":"hotel-1","flow":{"id":"conformance","digest":"00"},"format":1,"version":3,"revision":4,"status":"running","current_step":"Explore","visit":{"number":1,"entered":true,"asked":0},"state":{"guests":2},"steps":{},"memory":{"main":{"messages":[]}},"context":{},"path":[],"turns":[],"edges":[],"waiting":null,"error":null,"next_message":1,"archive":{"from":0,"next":1},"superseded":0,"owner":null,"labels":{},"lease":{"holder":null,"token":0,"until":null},"created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:01Z","expires_at":null}');
INSERT INTO archive VALUES ('hotel-1', 0, '{"seq":0,"messages":[{"namespace":"main","seq":0,"role":"user","parts":[{"type":"text","text":"Hello"}],"at":"2026-01-01T00:00:00Z"}],"path":[]}');
PRAGMA application_id = 0x666c6f77;
PRAGMA user_version = 1;
