"""A small language model on several agents, trained on generated text until its perplexity is near the least possible.

    python examples/lm.py

A sentence is "the ADJECTIVE NOUN VERB the ADJECTIVE NOUN .", where the first noun decides which verbs may follow. In the train
function, `mpca.attach`, `mpca.shard` and `mpca.log` are the only lines that take part in a run.
"""

import mpca

ADJECTIVES = ["old", "red", "small", "loud"]
NOUNS = {"dog": ["chases", "smells"], "cat": ["chases", "ignores"], "tree": ["shades", "hides"], "wall": ["hides", "stops"]}
WORDS = sorted({"the", ".", *ADJECTIVES, *NOUNS, *(verb for verbs in NOUNS.values() for verb in verbs)})
#: Of the eight words of a sentence two adjectives and two nouns are one of four, and the verb is one of two.
LEAST_PERPLEXITY = (4**4 * 2) ** (1 / 8)


def sentences(count, seed):
    """int64[count, 8], numbers of `WORDS`."""
    import random

    import torch

    chance, made = random.Random(seed), []
    for _ in range(count):
        subject, thing = chance.choice(list(NOUNS)), chance.choice(list(NOUNS))
        some = [chance.choice(ADJECTIVES) for _ in range(2)]
        made.append(["the", some[0], subject, chance.choice(NOUNS[subject]), "the", some[1], thing, "."])
    return torch.tensor([[WORDS.index(word) for word in one] for one in made])


def language_model():
    import torch
    from torch import nn

    class LanguageModel(nn.Module):
        """A decoder of two layers, whose input and output words share one matrix."""

        def __init__(self, size=32, longest=8):
            super().__init__()
            self.words, self.places = nn.Embedding(len(WORDS), size), nn.Embedding(longest, size)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(size, 2, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)
            )
            self.out = nn.Linear(size, len(WORDS))
            self.out.weight = self.words.weight
            nn.init.normal_(self.words.weight, std=0.1)

        def forward(self, text):
            length = text.shape[1]
            x = self.words(text) + self.places(torch.arange(length, device=text.device))
            later = torch.triu(torch.ones(length, length, dtype=torch.bool, device=text.device), diagonal=1)
            for layer in self.layers:
                x = layer(x, src_mask=later)
            return self.out(x)

    return LanguageModel()


def loss_of(model, text):
    """Mean over all words, each told from those before it; a full stop stands before the first."""
    import torch
    from torch.nn.functional import cross_entropy

    before = torch.cat([torch.full_like(text[:, :1], WORDS.index(".")), text[:, :-1]], dim=1)
    return cross_entropy(model(before).flatten(0, 1), text.flatten())


def train(rate=3e-3):
    """Returns the last perplexity of a batch."""
    import torch

    model = language_model().to(mpca.device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    mpca.attach(model, optimizer)
    for (text,) in mpca.shard(torch.utils.data.TensorDataset(sentences(4000, seed=1)), batch_size=64):
        optimizer.zero_grad()
        loss = loss_of(model, text.to(mpca.device()))
        loss.backward()
        optimizer.step()
        mpca.log(loss=loss)
    return float(loss.detach().exp())


def evaluate(state):
    import torch

    model = language_model()
    model.load_state_dict(state)
    with torch.no_grad():
        return {"perplexity": float(loss_of(model, sentences(500, seed=2)).exp())}


if __name__ == "__main__":
    goals = [mpca.Evaluate(evaluate, every="1s"), mpca.Target("perplexity", at_most=1.05 * LEAST_PERPLEXITY)]
    result = mpca.Distributor(num_agents=2, objectives=[mpca.MaxTime("60s"), *goals]).run(train)
    print(result.status, result.returns, "of at least", round(LEAST_PERPLEXITY, 3))
