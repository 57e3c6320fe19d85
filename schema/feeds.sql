-- Statements of feeds (task/feed.c, task/feed_admin.c); see statements.sql for the form.

-- read: feed_get
SELECT feed_id, statuses, cursor, head, created_at, updated_at, name FROM feed
WHERE user_id = :user_id AND everybody = :everybody AND name = :name

-- read: feed_list
SELECT feed_id, statuses, cursor, head, created_at, updated_at, name FROM feed
WHERE user_id = :user_id AND everybody = :everybody ORDER BY name

-- read: feed_count_user
SELECT count(*) FROM feed WHERE user_id = :user_id

-- write: feed_insert
INSERT INTO feed(user_id, everybody, name, statuses, cursor, head, created_at, updated_at)
VALUES (:user_id, :everybody, :name, :statuses, :cursor, :cursor, :now, :now)

-- write: feed_delete
DELETE FROM feed WHERE feed_id = :feed_id

-- write: feed_seek
UPDATE feed SET cursor = :cursor, head = :cursor, updated_at = :now WHERE feed_id = :feed_id

-- The cursor stands before the oldest range that is not acknowledged.
-- write: feed_settle
UPDATE feed SET head = :head, updated_at = :now,
    cursor = coalesce((SELECT min(from_seq) - 1 FROM feed_lease INDEXED BY feed_lease_open
        WHERE feed_id = :feed_id AND acked = 0), :head)
WHERE feed_id = :feed_id

-- read: feed_cursor
SELECT cursor FROM feed WHERE feed_id = :feed_id

-- read: feed_first_all
SELECT min(seq) FROM task_event

-- read: feed_first_user
SELECT min(seq) FROM task_event WHERE user_id = :user_id

-- read: feed_event_from
SELECT seq, timestamp FROM task_event WHERE seq >= :seq ORDER BY seq LIMIT 1

-- read: feed_scan_all
SELECT seq, to_status FROM task_event WHERE seq > :after ORDER BY seq LIMIT :limit

-- read: feed_scan_user
SELECT seq, to_status FROM task_event WHERE user_id = :user_id AND seq > :after ORDER BY seq LIMIT :limit

-- read: feed_range_all
SELECT seq, task_id, timestamp, from_status, to_status, attempt, worker_id, reason
FROM task_event WHERE seq BETWEEN :from AND :to ORDER BY seq

-- read: feed_range_user
SELECT seq, task_id, timestamp, from_status, to_status, attempt, worker_id, reason
FROM task_event WHERE user_id = :user_id AND seq BETWEEN :from AND :to ORDER BY seq

-- Ranges that are not acknowledged, or wait for one before them.
-- read: feed_lease_count
SELECT count(*) FROM feed_lease WHERE feed_id = :feed_id AND to_seq > :cursor

-- read: feed_lease_list
SELECT lease_id, from_seq, to_seq, acked, deliveries, until FROM feed_lease
WHERE feed_id = :feed_id AND to_seq > :cursor ORDER BY to_seq

-- read: feed_lease_expiry
SELECT min(until) FROM feed_lease INDEXED BY feed_lease_open WHERE feed_id = :feed_id AND acked = 0

-- read: feed_lease_expired
SELECT lease_id, from_seq, to_seq, deliveries FROM feed_lease INDEXED BY feed_lease_open
WHERE feed_id = :feed_id AND acked = 0 AND until <= :now ORDER BY from_seq LIMIT 1

-- read: feed_lease_get
SELECT from_seq, to_seq, acked, until, partial FROM feed_lease
WHERE lease_id = :lease_id AND feed_id = :feed_id AND deliveries = :deliveries

-- write: feed_lease_insert
INSERT INTO feed_lease(feed_id, from_seq, to_seq, deliveries, until)
VALUES (:feed_id, :from, :to, :deliveries, :until)

-- write: feed_lease_again
UPDATE feed_lease SET deliveries = deliveries + 1, until = :until WHERE lease_id = :lease_id

-- write: feed_lease_until
UPDATE feed_lease SET until = :until WHERE lease_id = :lease_id

-- write: feed_lease_ack
UPDATE feed_lease SET acked = 1, to_seq = :to, partial = :partial WHERE lease_id = :lease_id

-- write: feed_lease_trim
DELETE FROM feed_lease WHERE feed_id = :feed_id AND to_seq <= :cursor AND lease_id <= (SELECT lease_id FROM feed_lease
    WHERE feed_id = :feed_id AND to_seq <= :cursor ORDER BY lease_id DESC LIMIT 1 OFFSET :keep)

-- write: feed_lease_cancel
DELETE FROM feed_lease WHERE feed_id = :feed_id

-- Does a feed still want the history of this removed task?
-- read: feed_holds
SELECT EXISTS (SELECT 1 FROM purged p CROSS JOIN feed f WHERE p.task_id = :task_id AND p.purged_at >= :before
    AND (f.everybody = 1 OR f.user_id = p.user_id)
    AND f.cursor < (SELECT max(seq) FROM task_event e WHERE e.task_id = p.task_id))

-- read: feed_totals
SELECT (SELECT count(*) FROM feed), (SELECT count(*) FROM feed_lease WHERE acked = 0), (SELECT min(cursor) FROM feed)
