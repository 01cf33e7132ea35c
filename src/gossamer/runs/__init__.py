"""Runs: what is trained, the loop that trains it, and what it leaves on disk.

The code is organised as follows:
    settings         typed settings of a run: those of the training, and all together
    deployment_settings  those of data, agents and links
    network_settings  those of the network
    stored_settings  settings as a run has stored them
    setting_checks   spellings and mistakes of settings
    presets          named values of the settings that are not given
    hints            the word that is used here for one that is not
    options          settings as keyword arguments, for type checkers
    toml_files       reader of TOML files
    loading          the data graph of a run, loaded or given
    deployment       data, assignment and topology joined
    topologies       topologies without a training run
    connecting       C between the agents, certified
    link_sequences   links that change from step to step, as settings write them
    privacy_spec     the setting of differential privacy
    budgets          epsilon from noise, and noise from epsilon
    stages           networks and settings of a run's stages: an encoder, then the graph network
    hosts            hosts of a run's agents, of either stage
    handover         from the encoder's stage to the graph network's
    capacity         memory that weights and matrices need
    engine           the engine seam: how hosts' generators are driven
    run              a run: settings, host, engine, evaluations so far; prediction
    observers        the observer seam: what follows a run
    evaluated_steps  the steps at which a run is evaluated
    training         the training loop: steps, evaluations, observers, stops
    records          types of evaluations, message counts and summaries
    memory           memory kept from step to step
    message_counts   rows and bytes of a step, by phase and link
    row_traffic      rows and bytes of a forward pass, over the links of their routes
    changing_counts  the same where links change from step to step
    advice           warnings about settings that are likely to disappoint
    summaries        scores and costs of a run as one object
    new_folders      empty folders for results, locked
    directory        the run directory on disk
    run_json         run.json of a run directory, and the one in an agent's folder
    stored_results   what a report reads of a run directory, and what an audit leaves in it
    joined           a deployment joined from all agents' shares
    encoders         files of a run's encoder and of its encodings
    trained          a trained network, apart from its data
    model_files      a trained network as a file, and back
    model_cards      the page beside a model file
    transforms       files of transforms of features and targets
    initial_weights  weights that all agents start from
    inference        predictions for other graphs than the run's own
    evaluations      the file of a run's evaluations
    secret_files     secrets of agents, for dropout masks and quantisation noise
    recordings       messages that an agent has recorded for an audit
    checkpoints      the newest checkpoint of a run directory and the one before
    shares           shares on disk: arrays and their manifest
    share_checks     arrays of a share held against each other
    link_checks      arrays of a share about links
    tensors          files of named arrays with a checksum
    arrays           named arrays in their type, shape and range
    documents        JSON files and their bounds
    manifests        typed models of JSON files
"""
