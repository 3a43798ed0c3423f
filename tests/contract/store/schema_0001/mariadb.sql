CREATE TABLE tuner_hosts (
    id INTEGER NOT NULL AUTO_INCREMENT,
    name VARCHAR(255) NOT NULL,
    n_cores INTEGER NOT NULL,
    memory_bytes BIGINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
);
CREATE TABLE tuner_devices (
    id INTEGER NOT NULL AUTO_INCREMENT,
    host_id INTEGER NOT NULL,
    device VARCHAR(128) NOT NULL,
    kind VARCHAR(32) NOT NULL,
    number INTEGER NOT NULL,
    name VARCHAR(128) NOT NULL,
    memory_bytes BIGINT,
    PRIMARY KEY (id),
    UNIQUE (host_id, device),
    FOREIGN KEY(host_id) REFERENCES tuner_hosts (id),
    CONSTRAINT ck_devicekind CHECK (kind IN ('gpu', 'mig', 'cpu'))
);
CREATE TABLE tuner_dispatchers (
    id INTEGER NOT NULL AUTO_INCREMENT,
    study_id INTEGER NOT NULL,
    host_id INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    process_created_at_s DOUBLE NOT NULL,
    started_at DATETIME NOT NULL,
    beat_at DATETIME NOT NULL,
    ended_at DATETIME,
    seed BIGINT NOT NULL,
    study_file TEXT NOT NULL,
    folder TEXT NOT NULL,
    versions JSON NOT NULL,
    git_commit VARCHAR(64),
    git_is_dirty BOOL,
    PRIMARY KEY (id),
    FOREIGN KEY(study_id) REFERENCES studies (study_id) ON DELETE CASCADE,
    FOREIGN KEY(host_id) REFERENCES tuner_hosts (id)
);
CREATE INDEX ix_tuner_dispatchers_study_id ON tuner_dispatchers (study_id);
CREATE TABLE tuner_attempts (
    id INTEGER NOT NULL AUTO_INCREMENT,
    dispatcher_id INTEGER NOT NULL,
    trial_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    state VARCHAR(32) NOT NULL,
    outcome VARCHAR(32),
    cause VARCHAR(32),
    detail TEXT NOT NULL,
    params JSON NOT NULL,
    seed BIGINT NOT NULL,
    pid INTEGER,
    log_path TEXT NOT NULL,
    leased_at DATETIME NOT NULL,
    started_at DATETIME,
    ended_at DATETIME,
    finished_at DATETIME,
    PRIMARY KEY (id),
    UNIQUE (trial_id, number),
    FOREIGN KEY(dispatcher_id) REFERENCES tuner_dispatchers (id) ON DELETE CASCADE,
    FOREIGN KEY(trial_id) REFERENCES trials (trial_id) ON DELETE CASCADE,
    CONSTRAINT ck_attemptstate CHECK (state IN ('leased', 'running', 'stopping', 'clearing', 'finished')),
    CONSTRAINT ck_outcome CHECK (outcome IN ('completed', 'pruned', 'paused', 'failed', 'out_of_memory', 'timed_out', 'failed_to_start', 'lost', 'cancelled')),
    CONSTRAINT ck_cause CHECK (cause IN ('exception', 'not_a_number', 'no_result', 'device_memory', 'host_memory', 'timeout', 'exit_code', 'signal', 'launch', 'pruner', 'program', 'interrupted', 'dispatcher_gone'))
);
CREATE INDEX ix_tuner_attempts_dispatcher_id ON tuner_attempts (dispatcher_id);
CREATE INDEX ix_tuner_attempts_state ON tuner_attempts (state);
CREATE TABLE tuner_events (
    id INTEGER NOT NULL AUTO_INCREMENT,
    at DATETIME NOT NULL,
    dispatcher_id INTEGER NOT NULL,
    attempt_id INTEGER,
    name VARCHAR(64) NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(dispatcher_id) REFERENCES tuner_dispatchers (id) ON DELETE CASCADE,
    FOREIGN KEY(attempt_id) REFERENCES tuner_attempts (id) ON DELETE CASCADE
);
CREATE INDEX ix_tuner_events_attempt_id ON tuner_events (attempt_id);
CREATE INDEX ix_tuner_events_dispatcher_id ON tuner_events (dispatcher_id);
CREATE TABLE tuner_leases (
    id INTEGER NOT NULL AUTO_INCREMENT,
    attempt_id INTEGER NOT NULL,
    device_id INTEGER NOT NULL,
    held_device_id INTEGER,
    leased_at DATETIME NOT NULL,
    released_at DATETIME,
    PRIMARY KEY (id),
    FOREIGN KEY(attempt_id) REFERENCES tuner_attempts (id) ON DELETE CASCADE,
    FOREIGN KEY(device_id) REFERENCES tuner_devices (id),
    UNIQUE (held_device_id)
);
CREATE INDEX ix_tuner_leases_attempt_id ON tuner_leases (attempt_id);
CREATE TABLE tuner_metrics (
    id INTEGER NOT NULL AUTO_INCREMENT,
    attempt_id INTEGER NOT NULL,
    step INTEGER NOT NULL,
    name VARCHAR(255) NOT NULL,
    value FLOAT(53),
    PRIMARY KEY (id),
    FOREIGN KEY(attempt_id) REFERENCES tuner_attempts (id) ON DELETE CASCADE
);
CREATE INDEX ix_tuner_metrics_attempt_id ON tuner_metrics (attempt_id);
