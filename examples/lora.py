"""Adapters (LoRA) on a small language model, in a loop of accelerate's: the base stays where it is, adapters are exchanged.

    pip install 'mpca[transformers]'
    python examples/lora.py

The base learns on this machine to count by one, in a few seconds; nothing is downloaded. The run then teaches it to count by
three. In the train function, `mpca.attach`, `mpca.shard` and `mpca.log` are the only lines that take part in a run.
"""

import mpca

NUMBERS, LENGTH = 16, 8


def language_model():
    from transformers import GPT2Config, GPT2LMHeadModel

    small = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": LENGTH, "loss_type": "ForCausalLM"}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=NUMBERS, bos_token_id=0, eos_token_id=0, **small, **none))


def adapted(base):
    """The model with adapters, of which alone the parameters require gradients."""
    from peft import LoraConfig, get_peft_model

    model = language_model()
    model.load_state_dict(base)
    return get_peft_model(model, LoraConfig(r=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True))


def counting(step, texts=512):
    """Numbers that rise by `step`, modulo `NUMBERS`."""
    import torch

    begins = torch.randint(0, NUMBERS, (texts, 1), generator=torch.Generator().manual_seed(step))
    return (begins + step * torch.arange(LENGTH)) % NUMBERS


def pretrained(updates=150):
    """The state of a model that counts by one."""
    import torch

    model, texts = language_model(), counting(step=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for update in range(updates):
        batch = texts[update % 8 :: 8]
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    return model.state_dict()


def train(base):
    """Returns the number of parameters that train, and of all."""
    import torch
    from accelerate import Accelerator

    model = adapted(base)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    accelerator = Accelerator()
    model, optimizer = accelerator.prepare(model, optimizer)

    mpca.attach(model, optimizer)
    for (batch,) in mpca.shard(torch.utils.data.TensorDataset(counting(step=3)), batch_size=32):
        batch = batch.to(accelerator.device)
        optimizer.zero_grad()
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        optimizer.step()
        mpca.log(loss=loss)
    return sum(one.numel() for one in trained), sum(one.numel() for one in model.parameters())


def evaluate(state, base):
    """The share of numbers that follow rightly by three; the first one of a text could be any."""
    import torch

    model, texts = adapted(base).eval(), counting(step=3, texts=64)
    model.load_state_dict(state)
    with torch.no_grad():
        said = model(input_ids=texts).logits[:, :-1].argmax(dim=2)
    return {"accuracy": float((said == texts[:, 1:]).float().mean())}


if __name__ == "__main__":
    from functools import partial

    base = pretrained()
    goals = [mpca.Evaluate(partial(evaluate, base=base), every="1s"), mpca.Target("accuracy", at_least=0.8)]
    result = mpca.Distributor(num_agents=2, objectives=[mpca.MaxTime("60s"), *goals]).run(train, base)
    print(result.status, result.returns)
    adapters = {name: tensor for name, tensor in result.model_state.items() if ".lora_" in name}  # for model.load_state_dict
    print(len(adapters), "tensors of adapters,", sum(tensor.nbytes for tensor in adapters.values()), "bytes")
