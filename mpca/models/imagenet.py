"""The papers' ImageNet nets, by torchvision, without its trained weights and with He et al.'s initial parameters.

What of them is exchanged, against Table 1 of the paper (MiB of 4-byte parameters; buffers, averaged too, in brackets):

    ============  ===========  =================  =======
    net           parameters   MiB                Table 1
    ============  ===========  =================  =======
    resnet34      21,797,672    83.2  (+ 0.1)        83
    resnet152     60,192,808   229.6  (+ 0.6)       223
    vgg_a        132,863,336   506.8                491
    googlenet      6,624,904    25.3  (+ 0.1)         -
    alexnet       61,100,840   233.1                  -
    ============  ===========  =================  =======

ResNet-110 (`resnet_cifar.py`) has 1,727,962, 6.6 MiB (Table 1: 7; section 6.4: 6.7). VGG-A: the paper's 491 are these nets'
parameters without the last layer (4,096 x 1,000 and its bias: 15.6 MiB), which leaves 491.2; He et al. and Simonyan et al.
have it. ResNet-152: 223 is neither these parameters, nor them without the last layer (221.8) or without projections (219.0);
the paper does not say what its system leaves out. Buffers explain neither.

Other differences from the papers' nets: torchvision's ResNets halve in a block's 3 x 3 convolution instead of its first
1 x 1; its GoogLeNet has BatchNorm, and is built without the two auxiliary heads, so that its answer is one tensor in training
too; its AlexNet is that of "One weird trick" (one tower, no local response normalisation).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from mpca.extras import extras
from mpca.models.initialisation import build

with extras():
    import torchvision.models as theirs

__all__ = ["imagenet"]

_NETS: dict[str, Callable[[int], nn.Module]] = {
    "alexnet": lambda classes: theirs.alexnet(num_classes=classes),
    "googlenet": lambda classes: theirs.googlenet(num_classes=classes, aux_logits=False, init_weights=False),
    "resnet152": lambda classes: theirs.resnet152(num_classes=classes),
    "resnet34": lambda classes: theirs.resnet34(num_classes=classes),
    "vgg_a": lambda classes: theirs.vgg11(num_classes=classes, init_weights=False),  # VGG-A is torchvision's vgg11
}


def imagenet(name: str, classes: int) -> nn.Module:
    """float32[n, 3, h, w] -> logits float32[n, classes]. The paper feeds h = w = 224."""
    return build(lambda: _NETS[name](classes))
