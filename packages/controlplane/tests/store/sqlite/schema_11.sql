-- The tables of schema version 11, as the pipecd of that time made them.
CREATE TABLE analysis_result (
    application_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (application_id)
);
CREATE TABLE api_key (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE api_key_fact (
    key_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    expires_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    PRIMARY KEY (key_id)
);
CREATE INDEX api_key_fact_of_project ON api_key_fact (project_id);
CREATE TABLE application (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    piped_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    kind BIGINT NOT NULL,
    disabled BIGINT NOT NULL,
    deleted BIGINT NOT NULL,
    plugin_based BIGINT NOT NULL,
    sync_status BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX application_by_name ON application (project_id, name, created_at, id);
CREATE TABLE application_control (
    application_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (application_id)
);
CREATE TABLE application_label (
    entity_id VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    value VARCHAR NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (entity_id, "key")
)
 WITHOUT ROWID;
CREATE INDEX application_label_of_project ON application_label (project_id, "key", value, created_at, entity_id);
CREATE INDEX application_of_piped ON application (piped_id, disabled);
CREATE INDEX application_of_project ON application (project_id, created_at, id);
CREATE TABLE audit_record (
    project_id VARCHAR NOT NULL,
    sequence BIGINT NOT NULL,
    at BIGINT NOT NULL,
    actor VARCHAR NOT NULL,
    actor_id VARCHAR NOT NULL,
    action VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    subject_name VARCHAR NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (project_id, sequence)
);
CREATE INDEX audit_record_by_action ON audit_record (project_id, action, sequence, at);
CREATE INDEX audit_record_by_actor ON audit_record (project_id, actor, sequence, at);
CREATE INDEX audit_record_by_actor_id ON audit_record (project_id, actor_id, sequence, at);
CREATE INDEX audit_record_by_subject ON audit_record (project_id, subject, sequence, at);
CREATE INDEX audit_record_by_subject_name ON audit_record (project_id, subject_name, sequence, at);
CREATE INDEX audit_record_by_time ON audit_record (project_id, at);
CREATE TABLE command (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    piped_id VARCHAR NOT NULL,
    status BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX command_by_state ON command (status, created_at);
CREATE INDEX command_of_piped ON command (piped_id, status);
CREATE TABLE command_output (
    command_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (command_id)
);
CREATE TABLE deployment (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    piped_id VARCHAR NOT NULL,
    application_id VARCHAR NOT NULL,
    application_name VARCHAR NOT NULL,
    kind BIGINT NOT NULL,
    status BIGINT NOT NULL,
    completed BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    completed_at BIGINT NOT NULL,
    chain_id VARCHAR NOT NULL,
    trace_commit_hash VARCHAR NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX deployment_by_application_id ON deployment (project_id, application_id, created_at, id);
CREATE INDEX deployment_by_application_name ON deployment (project_id, application_name, created_at, id);
CREATE INDEX deployment_by_chain_id ON deployment (project_id, chain_id) WHERE chain_id != '';
CREATE INDEX deployment_by_end ON deployment (completed_at);
CREATE INDEX deployment_by_kind ON deployment (project_id, kind, created_at, id);
CREATE INDEX deployment_by_status ON deployment (project_id, status, created_at, id);
CREATE INDEX deployment_by_time ON deployment (project_id, created_at, id);
CREATE INDEX deployment_by_trace_commit_hash ON deployment (project_id, trace_commit_hash) WHERE trace_commit_hash != '';
CREATE INDEX deployment_by_update ON deployment (project_id, updated_at, created_at, id);
CREATE TABLE deployment_chain (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    completed BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX deployment_chain_by_state ON deployment_chain (completed, updated_at);
CREATE INDEX deployment_chain_by_update ON deployment_chain (project_id, updated_at, created_at, id);
CREATE INDEX deployment_chain_of_project ON deployment_chain (project_id, created_at, id);
CREATE TABLE deployment_label (
    entity_id VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    value VARCHAR NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (entity_id, "key")
)
 WITHOUT ROWID;
CREATE INDEX deployment_label_of_project ON deployment_label (project_id, "key", value, created_at, entity_id);
CREATE INDEX deployment_of_piped ON deployment (piped_id, completed);
CREATE TABLE deployment_outcome (
    deployment_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    application_id VARCHAR NOT NULL,
    status BIGINT NOT NULL,
    committed_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    completed_at BIGINT NOT NULL,
    PRIMARY KEY (deployment_id)
);
CREATE INDEX deployment_outcome_of_project ON deployment_outcome (project_id, completed_at, status, committed_at, application_id, deployment_id);
CREATE TABLE deployment_record (
    deployment_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (deployment_id)
);
CREATE TABLE deployment_trace (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    commit_hash VARCHAR NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX deployment_trace_by_commit_hash ON deployment_trace (project_id, commit_hash, created_at, id);
CREATE INDEX deployment_trace_by_update ON deployment_trace (project_id, updated_at, created_at, id);
CREATE INDEX deployment_trace_of_project ON deployment_trace (project_id, created_at, id);
CREATE TABLE event (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    event_key VARCHAR NOT NULL,
    status BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX event_by_age ON event (updated_at);
CREATE INDEX event_by_event_key ON event (project_id, event_key, created_at, id);
CREATE INDEX event_by_name ON event (project_id, name, created_at, id);
CREATE INDEX event_by_status ON event (project_id, status, created_at, id);
CREATE INDEX event_by_update ON event (project_id, updated_at, created_at, id);
CREATE TABLE event_label (
    entity_id VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    value VARCHAR NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (entity_id, "key")
)
 WITHOUT ROWID;
CREATE INDEX event_label_of_project ON event_label (project_id, "key", value, created_at, entity_id);
CREATE INDEX event_of_project ON event (project_id, created_at, id);
CREATE TABLE hook (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    secret VARCHAR NOT NULL,
    older_secret VARCHAR NOT NULL,
    secret_id VARCHAR NOT NULL,
    last_accepted_at BIGINT NOT NULL,
    last_refused_at BIGINT NOT NULL,
    older_secret_used_at BIGINT NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE UNIQUE INDEX hook_by_name ON hook (project_id, name);
CREATE TABLE installation (
    name VARCHAR NOT NULL,
    value VARCHAR NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE lease (
    piped_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    epoch BIGINT NOT NULL,
    instance_id VARCHAR NOT NULL,
    data_folder_id VARCHAR NOT NULL,
    renewals BIGINT NOT NULL,
    contested BIGINT NOT NULL,
    PRIMARY KEY (piped_id)
);
CREATE TABLE live_state (
    application_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    object_key VARCHAR NOT NULL,
    size BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    PRIMARY KEY (application_id)
);
CREATE INDEX live_state_by_object ON live_state (object_key) WHERE object_key != '';
CREATE INDEX live_state_to_seal ON live_state (application_id) WHERE object_key = '' AND length(data) >= 262144;
CREATE TABLE own_command (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    piped_id VARCHAR NOT NULL,
    handled BIGINT NOT NULL,
    succeeded BIGINT NOT NULL,
    reason VARCHAR NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX own_command_of_piped ON own_command (piped_id, handled);
CREATE TABLE piped (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    created_at BIGINT NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE piped_alarm (
    piped_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    sentence VARCHAR NOT NULL,
    raised_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (piped_id, name)
);
CREATE INDEX piped_of_project ON piped (project_id, created_at, id);
CREATE TABLE piped_queue (
    piped_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (piped_id)
);
CREATE TABLE piped_stat (
    piped_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (piped_id)
);
CREATE TABLE plugin_state (
    piped_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (piped_id)
);
CREATE TABLE project (
    id VARCHAR NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE project_rules (
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (project_id)
);
CREATE TABLE session (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    secret_hash VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    via BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX session_expiry ON session (expires_at);
CREATE INDEX session_of_project ON session (project_id, created_at);
CREATE TABLE shared_object (
    application_id VARCHAR NOT NULL,
    plugin_name VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    data BLOB NOT NULL,
    object_key VARCHAR NOT NULL,
    size BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    PRIMARY KEY (application_id, plugin_name, "key")
);
CREATE INDEX shared_object_by_object ON shared_object (object_key) WHERE object_key != '';
CREATE INDEX shared_object_to_seal ON shared_object (application_id, plugin_name, "key") WHERE object_key = '' AND length(data) >= 262144;
CREATE TABLE stage_log (
    deployment_id VARCHAR NOT NULL,
    stage_id VARCHAR NOT NULL,
    retried_count INTEGER NOT NULL,
    project_id VARCHAR NOT NULL,
    chunks BIGINT NOT NULL,
    last_index BIGINT NOT NULL,
    completed BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    lines BIGINT NOT NULL,
    sealed BIGINT NOT NULL,
    sealed_bytes BIGINT NOT NULL,
    PRIMARY KEY (deployment_id, stage_id, retried_count)
);
CREATE TABLE stage_log_chunk (
    deployment_id VARCHAR NOT NULL,
    stage_id VARCHAR NOT NULL,
    retried_count INTEGER NOT NULL,
    number BIGINT NOT NULL,
    last_index BIGINT NOT NULL,
    data BLOB NOT NULL,
    first_index BIGINT NOT NULL,
    late BIGINT NOT NULL,
    first_line BIGINT NOT NULL,
    PRIMARY KEY (deployment_id, stage_id, retried_count, number)
);
CREATE INDEX stage_log_chunk_by_index ON stage_log_chunk (deployment_id, stage_id, retried_count, late, last_index);
CREATE INDEX stage_log_chunk_by_line ON stage_log_chunk (deployment_id, stage_id, retried_count, first_line);
CREATE TABLE stage_log_object (
    deployment_id VARCHAR NOT NULL,
    stage_id VARCHAR NOT NULL,
    retried_count INTEGER NOT NULL,
    first_number BIGINT NOT NULL,
    project_id VARCHAR NOT NULL,
    last_number BIGINT NOT NULL,
    first_line BIGINT NOT NULL,
    last_line BIGINT NOT NULL,
    lowest_index BIGINT NOT NULL,
    highest_index BIGINT NOT NULL,
    object_key VARCHAR NOT NULL,
    size BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    directory BLOB NOT NULL,
    PRIMARY KEY (deployment_id, stage_id, retried_count, first_number)
);
CREATE UNIQUE INDEX stage_log_object_by_key ON stage_log_object (object_key);
CREATE INDEX stage_log_to_seal ON stage_log (deployment_id, stage_id, retried_count) WHERE completed = 1 AND bytes - sealed_bytes >= 65536;
CREATE TABLE unregistered_application (
    piped_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (piped_id)
);
PRAGMA application_id = 1349075780;
PRAGMA user_version = 11;
