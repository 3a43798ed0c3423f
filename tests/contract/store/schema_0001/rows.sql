INSERT INTO tuner_hosts (name, n_cores, memory_bytes) VALUES
    ('here', 8, 34359738368), ('there', 64, 1099511627776);
INSERT INTO tuner_devices (host_id, device, kind, number, name, memory_bytes) VALUES
    (1, 'GPU-0', 'gpu', 0, 'H200', 150754820096), (1, 'cpu:3', 'cpu', 3, 'cpu', NULL);
INSERT INTO tuner_dispatchers (study_id, host_id, pid, process_created_at_s, started_at, beat_at,
        ended_at, seed, study_file, folder, versions, git_commit, git_is_dirty) VALUES
    (1, 2, 17, 1.5, '2026-01-01 10:00:00', '2026-01-01 11:00:00', '2026-01-01 11:00:00', 5,
        'study: s', '/work', '{"python": "3.11"}', 'abc', TRUE),
    (1, 1, 4999999, 2.5, '2026-01-02 10:00:00', '2026-01-02 10:30:00', NULL, 5,
        'study: s', '/work', '{"python": "3.11"}', NULL, NULL);
INSERT INTO tuner_attempts (dispatcher_id, trial_id, number, state, outcome, cause, detail, params,
        seed, pid, log_path, leased_at, started_at, ended_at, finished_at) VALUES
    (1, 1, 1, 'finished', 'failed', 'exception', 'ValueError: Größe
  in line 3 🙂', '{"x": 0.5}', 11, 42, '/log/0', '2026-01-01 10:00:01', '2026-01-01 10:00:02',
        '2026-01-01 10:00:03', '2026-01-01 10:00:04'),
    (1, 1, 2, 'finished', 'completed', NULL, '', '{"x": 0.5}', 12, 43, '/log/1',
        '2026-01-01 10:00:05', '2026-01-01 10:00:06', '2026-01-01 10:00:07',
        '2026-01-01 10:00:08'),
    (2, 2, 1, 'running', NULL, NULL, '', '{"x": 0.25}', 13, 44, '/log/2', '2026-01-02 10:00:01',
        '2026-01-02 10:00:02', NULL, NULL);
INSERT INTO tuner_leases (attempt_id, device_id, held_device_id, leased_at, released_at) VALUES
    (1, 1, NULL, '2026-01-01 10:00:01', '2026-01-01 10:00:04'),
    (2, 2, NULL, '2026-01-01 10:00:05', '2026-01-01 10:00:08'),
    (3, 1, 1, '2026-01-02 10:00:01', NULL);
INSERT INTO tuner_events (at, dispatcher_id, attempt_id, name, detail) VALUES
    ('2026-01-01 10:00:01', 1, 1, 'leased', 'GPU 0'),
    ('2026-01-01 11:00:00', 1, NULL, 'ended', '');
INSERT INTO tuner_metrics (attempt_id, step, name, value) VALUES
    (2, 1, 'loss', 0.125), (2, 2, 'loss', NULL);
CREATE TABLE tuner_alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT tuner_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO tuner_alembic_version (version_num) VALUES ('0001');
