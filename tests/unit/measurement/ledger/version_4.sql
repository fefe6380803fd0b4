PRAGMA application_id = 1885760612;
PRAGMA user_version = 4;
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
    , compression TEXT, compression_reason TEXT);
INSERT INTO "kinds" VALUES(1,'/v1/chat/completions','m','b0','{"gpu":"H200"}',NULL,NULL,NULL,NULL,'ok',NULL,200,1,0,NULL,NULL);
INSERT INTO "kinds" VALUES(2,'/v1/chat/completions','m','b0','{"gpu":"H200"}','acme','control','feedback','prefix','ok',NULL,200,1,1,'compressed','pays');
INSERT INTO "kinds" VALUES(3,'/v1/chat/completions',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'rejected','model_not_found',404,0,0,NULL,NULL);
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
    , slice_start INTEGER, round_start INTEGER);
INSERT INTO "request_rows" VALUES(1800000001000000,1800000000000000,'plain',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[null,null,null,null,null,null,null,null,null,null,1000000,null,null,null,null]',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "request_rows" VALUES(1800000011000000,1800000010000000,'all',2,1100,100,1001,1024,512,500,3,1100,'[1000,2000,3000,3500,4000,5000,6000,7000,100000,700000,1000000,90000,300000,400,250000]',X'204E0000A0D90800','[[0,"reasoning"],[1,"content"]]','[[8000,"role"],[800000,"done"]]',X'72D8988DED517F295BBAA4B05DDAFED4',X'8DBFB130EC7F96D7',1800000000000000,1799999940000000);
INSERT INTO "request_rows" VALUES(1800000021000000,1800000020000000,NULL,3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[null,null,null,null,null,null,null,null,null,null,1000000,null,null,null,null]',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE INDEX engine_samples_at ON engine_samples (at);
CREATE VIEW requests AS SELECT
        id, received, request_id,
        endpoint, model, backend, labels, tenant, arm, mode, reason,
        outcome, error, status, attempts, streamed,
        compression, compression_reason,
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
        json_extract(moments, '$[13]') AS compressor_waited_us,
        json_extract(moments, '$[14]') AS compressor_spent_us,
        token_gaps, token_kinds, other_events, blocks, conversation, slice_start, round_start
    FROM request_rows JOIN kinds USING (kind);
COMMIT;
