"""Names of parameters in facebookresearch/detr and hitachi-rd-cv/qpic, of which the latter extends the former."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

AUTHORS_NAMES = (
    (r"^backbone\.", "backbone.0.body."),
    (r"^neck\.convs\.0\.conv\.", "input_proj."),
    (r"^query_embedding\.", "query_embed."),
    (r"^decoder\.post_norm\.", "transformer.decoder.norm."),
    (r"^(encoder|decoder)\.layers\.", r"transformer.\1.layers."),
    (r"\.self_attn\.attn\.", ".self_attn."),
    (r"\.cross_attn\.attn\.", ".multihead_attn."),
    (r"\.ffn\.layers\.0\.0\.", ".linear1."),
    (r"\.ffn\.layers\.1\.", ".linear2."),
    (r"\.norms\.0\.", ".norm1."),
    (r"\.norms\.1\.", ".norm2."),
    (r"\.norms\.2\.", ".norm3."),
    (r"^bbox_head\.fc_cls\.", "class_embed."),
    (r"^bbox_head\.reg_ffn\.layers\.0\.0\.", "bbox_embed.layers.0."),
    (r"^bbox_head\.reg_ffn\.layers\.1\.", "bbox_embed.layers.1."),
    (r"^bbox_head\.fc_reg\.", "bbox_embed.layers.2."),
    (r"^bbox_head\.object_class\.", "obj_class_embed."),
    (r"^bbox_head\.verb_class\.", "verb_class_embed."),
    (r"^bbox_head\.subject_box\.", "sub_bbox_embed.layers."),
    (r"^bbox_head\.object_box\.", "obj_bbox_embed.layers."),
    (r"_bbox_embed\.layers\.2\.", "_bbox_embed.layers.1."),
    (r"_bbox_embed\.layers\.4\.", "_bbox_embed.layers.2."),
)


def authors_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a DETR or QPIC by the authors' names."""
    names = {}
    for name, value in state.items():
        for pattern, replacement in AUTHORS_NAMES:
            name = re.sub(pattern, replacement, name)
        names[name] = value
    return names
