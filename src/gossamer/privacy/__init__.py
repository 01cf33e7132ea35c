"""Privacy: the knowledge that curious agents gain of others' vertices, from algebra and from attacks.

Curious agents follow the protocol and read all that they receive. The code is organised as follows:
    knowledge     what they know beside messages: dropout masks, weights, and at which steps
    seen_rows     which rows of other agents' vertices reach them: S of the forward pass, R^T of the backward pass
    algebra       which vertices stand alone in these rows, and the rank of what is known of each one's features
    recording     a run with one host for each agent, of which all is kept that the curious agents receive
    record_checks recorded messages of a real run, held against its plan
    own_share     an audit from one agent's share alone
    tracing       other agents' weights at each step, from what consensus sends
    equations     known linear equations in a vertex's features, from the recorded rows
    recovery      solutions of these: least squares, sparse recovery
    features      the attack on features, beside its baselines
    labels        the attacks on labels: from backward rows, and from the first gradient
    membership    membership inference with shadow runs
    audit         algebra and attacks joined
    encoded       the same behind an encoder
    noisy         the same of a private run
    canaries      lower bounds on epsilon
    canary_runs   canaries in private runs, and in draws of a single release

`gossamer docs privacy` explains what they find.
"""
