"""Weights of the classes in a loss, by the recipe's `class_weights`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dropbench.harness.errors import InputError, unknown_name

if TYPE_CHECKING:
    from torch import Tensor


def class_weights(given: Any, classes: Sequence[str], targets: Tensor) -> Tensor:
    """Return the weight of each class (C,), float32, 1 for a class that `given` does not name.

    Args:
        given: "balanced" for N / (C · the class's number of samples), as in scikit-learn; a sequence in the order of
            the classes, or a mapping from their names.
        classes: names of the C classes, or () if they have none.
        targets: the class of each of the N training samples, for "balanced". A class without samples has weight 1.

    Raises:
        InputError: a class is unknown, or there are more or fewer weights than classes.
    """
    import torch

    number = max(len(classes), int(targets.max()) + 1)
    if given == "balanced":
        from sklearn.utils.class_weight import compute_class_weight

        present = targets.unique()
        weights = torch.ones(number)
        # Those without samples count as classes, too.
        balanced = compute_class_weight("balanced", classes=present.numpy(), y=targets.numpy())
        weights[present] = torch.as_tensor(balanced * len(present) / number, dtype=torch.float32)
        return weights
    if isinstance(given, Mapping):
        for name in given:
            if name not in classes:
                raise unknown_name("class in class_weights", name, classes)
        return torch.tensor([given.get(name, 1.0) for name in classes])
    if len(given) != number:
        raise InputError(f"class_weights={','.join(map(str, given))}: expected {number} numbers, one per class")
    return torch.tensor(given)
