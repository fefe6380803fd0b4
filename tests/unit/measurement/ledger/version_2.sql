PRAGMA application_id = 1885760612;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE engine_samples (
        at INTEGER NOT NULL,
        backend TEXT NOT NULL,
        running INTEGER,
        waiting INTEGER,
        kv_usage REAL,
        preemptions INTEGER,
        in_flight INTEGER NOT NULL
    );
CREATE TABLE kinds (
        kind INTEGER PRIMARY KEY,
        endpoint TEXT NOT NULL,
        model TEXT,
        backend TEXT,
        labels TEXT,
        tenant TEXT,
        arm TEXT,
        mode TEXT,
        reason TEXT,
        outcome TEXT NOT NULL,
        error TEXT,
        status INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        streamed INTEGER NOT NULL
    );
INSERT INTO "kinds" VALUES(1,'/v1/chat/completions','m','b0','{"gpu":"H200"}',NULL,NULL,NULL,NULL,'ok',NULL,200,1,0);
CREATE TABLE request_rows (
        id INTEGER PRIMARY KEY,
        received INTEGER NOT NULL,
        request_id TEXT,
        kind INTEGER NOT NULL REFERENCES kinds,
        original_tokens INTEGER,
        removed_tokens INTEGER,
        prompt_tokens INTEGER,
        available_tokens INTEGER,
        expected_tokens INTEGER,
        reported_tokens INTEGER,
        output_tokens INTEGER,
        prefix_tokens INTEGER,
        moments TEXT NOT NULL,
        token_gaps BLOB,
        token_kinds TEXT,
        other_events TEXT,
        blocks BLOB,
        conversation BLOB
    );
INSERT INTO "request_rows" VALUES(1,1,NULL,1,NULL,300,NULL,NULL,NULL,NULL,NULL,NULL,'[1,2,3,4,5,6,7,8,null,null,11,12,13]',NULL,NULL,NULL,NULL,NULL);
CREATE VIEW requests AS SELECT
        id, received, request_id,
        endpoint, model, backend, labels, tenant, arm, mode, reason,
        outcome, error, status, attempts, streamed,
        original_tokens,
        original_tokens - ifnull(removed_tokens, 0) AS sent_tokens,
        removed_tokens,
        prompt_tokens, available_tokens, expected_tokens, reported_tokens, output_tokens,
        prefix_tokens,
        json_extract(moments, '$[0]') AS parsed_us,
        json_extract(moments, '$[1]') AS encoded_us,
        json_extract(moments, '$[2]') AS matched_us,
        json_extract(moments, '$[3]') AS compressed_us,
        json_extract(moments, '$[4]') AS leased_us,
        json_extract(moments, '$[5]') AS sent_us,
        json_extract(moments, '$[6]') AS headers_us,
        json_extract(moments, '$[7]') AS first_event_us,
        json_extract(moments, '$[8]') AS first_token_us,
        json_extract(moments, '$[9]') AS last_token_us,
        json_extract(moments, '$[10]') AS end_us,
        json_extract(moments, '$[11]') AS predicted_us,
        json_extract(moments, '$[12]') AS fallback_us,
        token_gaps, token_kinds, other_events, blocks, conversation
    FROM request_rows JOIN kinds USING (kind);
CREATE INDEX engine_samples_at ON engine_samples (at);
COMMIT;
