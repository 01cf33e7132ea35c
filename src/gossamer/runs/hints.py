"""Hints for options that do not exist: the word that is used here, or what there is instead."""

import difflib
import re
from collections.abc import Callable, Collection

NEAR = 0.75  # similarity from which on a name is taken for a mistyped one

# Words of other libraries for a setting.
SYNONYMS = {
    "step_size": "lr learning_rate eta alpha stepsize",
    "step_decay": "lr_decay learning_rate_decay",
    "steps": "epochs num_epochs n_epochs max_epochs epoch max_iter n_iter iterations num_iterations num_steps rounds",
    "agents": "n_agents num_agents clients n_clients num_clients workers num_workers nodes num_nodes world_size",
    "update": "optimizer optimiser optim solver",
    "hidden": "hidden_channels hidden_dim hidden_size hidden_units hidden_layers hidden_layer_sizes num_hidden width",
    "dropout": "p drop drop_rate dropout_rate dropout_p p_dropout",
    "weight_decay": "l2 wd l2_reg regularization regularisation",
    "class_weights": "class_weight pos_weight balanced balance balance_classes",
    "batch": "batch_size minibatch",
    "momentum": "beta beta1 betas",
    "layers": "model conv layer layer_type conv_type gnn",
    "activation": "act nonlinearity",
    "seed": "random_state random_seed",
    "dtype": "precision",
    "threads": "num_threads n_jobs",
    "dataset": "data graph",
    "patience": "early_stopping early_stop early_stopping_patience early_stopping_rounds",
    "keep": "keep_best save_best restore_best restore_best_weights",
    "jump": "jk jumping_knowledge",
    "aggregate": "aggr aggregation aggregator",
    "learn_epsilon": "train_eps",
    "epsilon": "eps",
    "attention_dropout": "att_dropout attn_dropout",
    "standardise": "standardize normalise_features normalize_features scale_features",
    "initial_deviation": "init_std initialisation_std weight_std",
    "preset": "recipe profile",
    "symmetrise": "symmetrize symmetric undirected to_undirected",
    "split": "fold fold_index split_index split_number",
    "task": "task_type problem_type objective multilabel multi_label",
    "assignment": "partition partitioner partitioning",
    "evaluate_every": "eval_every eval_interval log_every validate_every",
    "checkpoint_every": "save_every",
    "score": "metric metrics scoring monitor scorer",
    "compress": "compression quantization quantisation quantize",
    "boundary_bits": "bits num_bits",
    "baselines": "compare comparison references",
    "consensus": "secure_aggregation secagg masking",
    "consensus_every": "local_steps local_epochs communicate_every",
    "out": "output output_dir out_dir save_dir logdir log_dir run_dir",
}
# What there is instead; settings stand in braces.
REMARKS = {
    "num_layers": "{hidden} holds the widths of the hidden layers: 64 for two layers, 64,64 for three",
    "device": "computation is on the CPU, on as many threads as {threads} says",
    "normalize": "{standardise} is for features, {normalise} gives rows of sage the norm 1",
    "v2": "dynamic attention is {layers} = gatv2",
    "concat": "it is an option of a single layer, as in {layers} = gat:concat=false/gat; heads are side by side in "
    "hidden layers and averaged in the last one",
    "inner": "it is an option of a single layer, as in {layers} = gin:inner=32/gin",
    "k": "{order} is the order of a layer's filter: 2 where ChebConv has K = 3",
}
REMARKS |= dict.fromkeys(
    ("sample_weights", "sample_weight"),
    "weights of examples come with the data: sample_weights of make_graph, data.sample_weight, a column weight",
)
REMARKS |= dict.fromkeys(
    ("train_mask", "val_mask", "test_mask", "mask", "masks", "train_size", "val_size", "test_size"),
    "masks come with the data: train, validation and test of make_graph, data.train_mask, a column split",
)
REMARKS |= dict.fromkeys(("n_layers", "depth"), REMARKS["num_layers"])
REMARKS |= dict.fromkeys(("cuda", "gpu", "gpus", "accelerator"), REMARKS["device"])


def make_hint(name: str, known: Collection[str], spell: Callable[[str], str] = repr) -> str:
    """A hint for a name that is not among the known ones, or nothing rather than a wrong one.

    `spell` writes a known name as the user would.
    """
    word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    for found, words in SYNONYMS.items():
        if word in words.split() and found in known:
            return f"did you mean {spell(found)}?"
    if word in REMARKS:
        settings = set(re.findall(r"{(\w+)}", REMARKS[word]))
        if settings <= set(known):
            return REMARKS[word].format(**{setting: spell(setting) for setting in settings})
    alike = [one for one in known if one[:1] == word[:1]]  # a mistyped word begins well; heads are no threads
    near = difflib.get_close_matches(word, alike, n=1, cutoff=NEAR)
    return f"did you mean {spell(near[0])}?" if near else ""
