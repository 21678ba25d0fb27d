-- The tables of schema version 2, as the pipecd of that time made them.
CREATE TABLE api_key (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE application (
    id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    piped_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    kind BIGINT NOT NULL,
    disabled BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX application_of_piped ON application (piped_id, disabled);
CREATE INDEX application_of_project ON application (project_id, created_at, id);
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
    version INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX deployment_of_application ON deployment (application_id, created_at);
CREATE INDEX deployment_of_piped ON deployment (piped_id, completed);
CREATE INDEX deployment_of_project ON deployment (project_id, created_at, id);
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
CREATE INDEX piped_of_project ON piped (project_id, created_at, id);
CREATE TABLE piped_alarm (
    piped_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    sentence VARCHAR NOT NULL,
    raised_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (piped_id, name)
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
    PRIMARY KEY (id)
);
CREATE TABLE shared_object (
    application_id VARCHAR NOT NULL,
    plugin_name VARCHAR NOT NULL,
    "key" VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (application_id, plugin_name, "key")
);
CREATE TABLE stage_log (
    deployment_id VARCHAR NOT NULL,
    stage_id VARCHAR NOT NULL,
    retried_count INTEGER NOT NULL,
    project_id VARCHAR NOT NULL,
    chunks BIGINT NOT NULL,
    last_index BIGINT NOT NULL,
    completed BIGINT NOT NULL,
    PRIMARY KEY (deployment_id, stage_id, retried_count)
);
CREATE TABLE stage_log_chunk (
    deployment_id VARCHAR NOT NULL,
    stage_id VARCHAR NOT NULL,
    retried_count INTEGER NOT NULL,
    number BIGINT NOT NULL,
    last_index BIGINT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (deployment_id, stage_id, retried_count, number)
);
CREATE TABLE unregistered_application (
    piped_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL,
    updated_at BIGINT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (piped_id)
);
PRAGMA application_id = 1349075780;
PRAGMA user_version = 2;
