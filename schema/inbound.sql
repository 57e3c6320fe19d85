-- Statements of inbound/ (the form: statements.sql).

-- read: hook_count
SELECT count(*) FROM hook

-- write: hook_insert
INSERT INTO hook(source, secret, allow, per_minute, enabled, created_at, updated_at)
VALUES (:source, :secret, :allow, :per_minute, :enabled, :now, :now) ON CONFLICT(source) DO NOTHING

-- read: hook_get
SELECT h.hook_id, h.source, h.allow, h.per_minute, h.enabled, h.created_at, h.updated_at, h.received, h.last_event_at,
    h.secret, CASE WHEN h.old_secret_until > :now THEN h.old_secret END,
    CASE WHEN h.old_secret IS NOT NULL THEN h.old_secret_until ELSE 0 END,
    (SELECT count(*) FROM (SELECT 1 FROM processed_event p WHERE p.hook_id = h.hook_id AND p.handled_at = 0 LIMIT 100000))
FROM hook h WHERE h.source = :source

-- What a delivery is judged by.
-- read: hook_find
SELECT hook_id, allow, per_minute, secret, CASE WHEN old_secret_until > :now THEN old_secret END
FROM hook WHERE source = :source AND enabled = 1

-- read: hook_list
SELECT source FROM hook ORDER BY source

-- write: hook_update
UPDATE hook SET allow = coalesce(:allow, allow), per_minute = coalesce(:per_minute, per_minute),
    enabled = coalesce(:enabled, enabled), updated_at = :now
WHERE source = :source

-- write: hook_rotate
UPDATE hook SET old_secret = CASE WHEN :until > :now THEN secret END, old_secret_until = :until, secret = :secret,
    updated_at = :now
WHERE source = :source

-- write: hook_delete
DELETE FROM hook WHERE source = :source

-- write: hook_received
UPDATE hook SET received = received + 1, last_event_at = :now WHERE hook_id = :hook_id AND enabled = 1

-- read: inbound_known
SELECT body_hash FROM processed_event WHERE hook_id = :hook_id AND event_id = :event_id

-- read: inbound_waiting
SELECT count(*) FROM (SELECT 1 FROM processed_event WHERE hook_id = :hook_id AND handled_at = 0 LIMIT :limit)

-- write: inbound_insert
INSERT INTO processed_event(hook_id, event_id, received_at, event_type, correlation_id, body_hash, body)
VALUES (:hook_id, :event_id, :now, :event_type, :correlation_id, :body_hash, :body)

-- read: inbound_next
SELECT p.event_seq, p.event_id, p.received_at, p.event_type, p.correlation_id, p.body
FROM processed_event p WHERE p.hook_id = (SELECT hook_id FROM hook WHERE source = :source)
    AND p.handled_at = 0 AND p.event_seq > :after ORDER BY p.event_seq LIMIT 1

-- read: inbound_next_about
SELECT p.event_seq, p.event_id, p.received_at, p.event_type, p.correlation_id, p.body
FROM processed_event p WHERE p.hook_id = (SELECT hook_id FROM hook WHERE source = :source)
    AND p.correlation_id = :correlation_id AND p.handled_at = 0 AND p.event_seq > :after ORDER BY p.event_seq LIMIT 1

-- write: inbound_handled
UPDATE processed_event SET handled_at = :now, body = x'' WHERE event_seq = :event_seq AND handled_at = 0

-- read: inbound_is_of
SELECT 1 FROM processed_event WHERE event_seq = :event_seq AND hook_id = :hook_id

-- read: inbound_list_desc
SELECT event_seq, event_id, received_at, event_type, correlation_id, handled_at, body FROM processed_event
WHERE hook_id = :hook_id AND event_seq < :after ORDER BY event_seq DESC LIMIT :limit

-- read: inbound_list_asc
SELECT event_seq, event_id, received_at, event_type, correlation_id, handled_at, body FROM processed_event
WHERE hook_id = :hook_id AND event_seq > :after ORDER BY event_seq LIMIT :limit

-- read: inbound_waiting_desc
SELECT event_seq, event_id, received_at, event_type, correlation_id, handled_at, body FROM processed_event
WHERE hook_id = :hook_id AND handled_at = 0 AND event_seq < :after ORDER BY event_seq DESC LIMIT :limit

-- read: inbound_waiting_asc
SELECT event_seq, event_id, received_at, event_type, correlation_id, handled_at, body FROM processed_event
WHERE hook_id = :hook_id AND handled_at = 0 AND event_seq > :after ORDER BY event_seq LIMIT :limit

-- Of a source that was removed.
-- write: inbound_purge_hook
DELETE FROM processed_event WHERE event_seq IN
    (SELECT event_seq FROM processed_event WHERE hook_id = :hook_id ORDER BY event_seq LIMIT :limit)

-- write: inbound_purge_unhandled
DELETE FROM processed_event WHERE event_seq IN
    (SELECT event_seq FROM processed_event INDEXED BY processed_event_unhandled WHERE handled_at = 0 AND received_at < :before
     ORDER BY received_at LIMIT :limit)

-- After the unhandled ones: what is as old is handled, nothing has to be passed over.
-- write: inbound_purge_aged
DELETE FROM processed_event WHERE event_seq IN
    (SELECT event_seq FROM processed_event WHERE received_at < :before AND handled_at > 0
     ORDER BY received_at LIMIT :limit)

-- No more rows than this; what still waits for its consumer is bounded by hook.backlog.
-- write: inbound_purge_beyond
DELETE FROM processed_event WHERE event_seq IN
    (SELECT event_seq FROM processed_event WHERE handled_at > 0
        AND event_seq <= (SELECT max(event_seq) FROM processed_event) - :keep ORDER BY event_seq LIMIT :limit)
