"""transformers' Trainer on several agents: a small BERT tells which of two words a text has more often.

    pip install 'mpca[transformers]'
    python examples/transformers_trainer.py

`trainer.add_callback(Callback(trainer))` is the only line that takes part in a run. The model begins untrained; nothing is
downloaded. The number of epochs is larger than any run: the run's objectives end the Trainer.
"""

import mpca

WORDS, LENGTH = 12, 15


def model():
    from transformers import BertConfig, BertForSequenceClassification

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return BertForSequenceClassification(BertConfig(vocab_size=WORDS, max_position_embeddings=LENGTH, **small))


def texts(count, seed):
    """Texts of random words, with label 1 where word 1 is there more often than word 0."""
    import torch

    words = torch.randint(0, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    labels = ((words == 1).sum(dim=1) > (words == 0).sum(dim=1)).long()
    return [{"input_ids": one, "labels": label} for one, label in zip(words, labels, strict=True)]


def train(epochs=10_000, rate=3e-3):
    """Returns the number of updates."""
    from transformers import Trainer, TrainingArguments

    from mpca.transformers import Callback

    settings = TrainingArguments(
        output_dir="trained",
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=rate,
        lr_scheduler_type="constant",
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model(), settings, train_dataset=texts(4000, seed=1))
    trainer.add_callback(Callback(trainer))
    trainer.train()
    return trainer.state.global_step


def evaluate(state):
    import torch

    judge = model().eval()
    judge.load_state_dict(state)
    asked = texts(1000, seed=2)
    words, labels = (torch.stack([one[name] for one in asked]) for name in ("input_ids", "labels"))
    with torch.no_grad():
        said = judge(input_ids=words).logits
    return {"accuracy": float((said.argmax(dim=1) == labels).float().mean())}


if __name__ == "__main__":
    objectives = [mpca.MaxTime("60s"), mpca.Evaluate(evaluate, every="1s"), mpca.Target("accuracy", at_least=0.95)]
    result = mpca.Distributor(num_agents=2, objectives=objectives).run(train)
    print(result.status, result.returns)
