"""Make the golden files of tests/test_golden.c with PyTorch and Hugging Face's transformers.

    python tests/golden/make_golden.py        writes tests/golden/{gpt2,llama,llama31}/

Each directory is what save_pretrained writes (model.safetensors, config.json), and expected.safetensors: tokens and
targets, logits and loss of the start, every gradient, and the losses of ten AdamW steps on the same batch. The files are
committed; the tests need no Python.
"""
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH, TOKENS, VOCABULARY = 2, 16, 61


def models():
    yield "gpt2", GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=16, n_positions=TOKENS, vocab_size=VOCABULARY,
                                             activation_function="gelu_new", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                             attn_implementation="eager"))
    yield "llama", LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                                hidden_size=16, intermediate_size=64, max_position_embeddings=TOKENS,
                                                vocab_size=VOCABULARY, rms_norm_eps=1e-5, tie_word_embeddings=False,
                                                rope_theta=10000.0, attn_implementation="eager"))
    yield "llama31", LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1,
                                                  hidden_size=16, intermediate_size=64, max_position_embeddings=1024,
                                                  vocab_size=VOCABULARY, rms_norm_eps=1e-5, tie_word_embeddings=True,
                                                  rope_theta=100.0, attn_implementation="eager",
                                                  rope_scaling={"rope_type": "llama3", "factor": 8.0,
                                                                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                                "original_max_position_embeddings": 128}))


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def main():
    torch.manual_seed(1)
    for name, model in models():
        torch.manual_seed(7)
        for p in model.parameters():  # livelier than a real start
            with torch.no_grad():
                p.add_(torch.randn_like(p) * 0.1)
        directory = os.path.join(HERE, name)
        model.save_pretrained(directory)
        for extra in ("generation_config.json",):
            path = os.path.join(directory, extra)
            if os.path.exists(path):
                os.remove(path)
        ids = torch.randint(0, VOCABULARY, (BATCH, TOKENS))
        targets = torch.randint(0, VOCABULARY, (BATCH, TOKENS))
        expected = {"ids": ids.to(torch.int32), "targets": targets.to(torch.int32)}
        decays = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() == 1]
        optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                      lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
        losses = []
        for step in range(10):
            optimizer.zero_grad()
            logits = model(input_ids=ids).logits
            loss = loss_of(logits, targets)
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                expected["logits"] = logits.detach().clone().contiguous()
                for key, p in model.named_parameters():
                    expected["grad." + key] = p.grad.detach().clone().contiguous()
            optimizer.step()
        expected["losses"] = torch.tensor(losses, dtype=torch.float64)
        save_file(expected, os.path.join(directory, "expected.safetensors"))
        print(name, sum(p.numel() for p in model.parameters()), "parameters, losses", losses[0], losses[-1])


if __name__ == "__main__":
    sys.exit(main())
