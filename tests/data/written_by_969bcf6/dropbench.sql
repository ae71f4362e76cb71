BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE attempts (
	trial_id VARCHAR(12) NOT NULL, 
	number INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	cause TEXT, 
	executor TEXT, 
	job_id TEXT, 
	host TEXT, 
	pid INTEGER, 
	started_at VARCHAR(32), 
	ended_at VARCHAR(32), 
	device TEXT, 
	cpu_seconds FLOAT, 
	gpu_seconds FLOAT, 
	peak_memory_bytes BIGINT, 
	steps_done INTEGER, 
	message TEXT, submission_id VARCHAR(32), waited_seconds FLOAT, cpus INTEGER, gpus INTEGER, pieces INTEGER, 
	CONSTRAINT pk_attempts PRIMARY KEY (trial_id, number), 
	CONSTRAINT fk_attempts_trial_id FOREIGN KEY(trial_id) REFERENCES trials (id)
)
 WITHOUT ROWID

;
INSERT INTO "attempts" VALUES('27fb30220a07',1,'succeeded',NULL,'local','12154','laptop',12158,'2026-11-23T10:40:58.620+00:00','2026-11-23T10:41:12.746+00:00','cpu',3.492,0.0,575717376,8,NULL,'349b7c0e43c8470e85737e432f236284',1.018,1,0,1);
INSERT INTO "attempts" VALUES('2b862a69bfe7',1,'succeeded',NULL,'local','11722','laptop',11729,'2026-11-23T10:40:28.394+00:00','2026-11-23T10:40:29.948+00:00','cpu',0.543,0.0,630087680,30,NULL,'726ca28b35584672be2fc00d1b5b4a69',16.882,1,0,1);
INSERT INTO "attempts" VALUES('2ed94e0cd8ee',1,'succeeded',NULL,'local','12716','laptop',12721,'2026-11-23T10:41:59.280+00:00','2026-11-23T10:42:05.799+00:00','cpu',2.651,0.0,490893312,4,NULL,'f2dee99441d04ab0b41d18fa336f65e3',1.29,1,0,1);
INSERT INTO "attempts" VALUES('31d10206d3e6',1,'out_of_memory','MemoryError: no message','local','13320','laptop',13328,'2026-11-23T10:43:13.195+00:00','2026-11-23T10:43:22.071+00:00','cpu',2.605,0.0,468017152,0,'           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/dropbench/adapters/timm_attention.py", line 34, in forward
    out = attend(q, k, v, self.site, training=self.training, mask=attn_mask, causal=is_causal)
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/dropbench/harness/attention.py", line 94, in attend
    fast = site.regularizer.attend(q, k, v, site, mask=joined, scale=scale)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/dropbench/harness/regularizers/drop.py", line 56, in attend
    kept = ~self.dropped((*q.shape[:-1], k.shape[-2]), site, q.device)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/bench/trouble.py", line 12, in dropped
    self.strike(shape[0])
  File "/home/me/bench/trouble.py", line 30, in strike
    raise MemoryError
MemoryError','a244300052954b4fa32cef11e1fc5fd0',1.491,1,0,1);
INSERT INTO "attempts" VALUES('31d10206d3e6',2,'succeeded',NULL,'local','13320','laptop',13328,'2026-11-23T10:43:22.119+00:00','2026-11-23T10:43:26.647+00:00','cpu',1.258,0.0,622825472,4,NULL,'a244300052954b4fa32cef11e1fc5fd0',0.049,1,0,2);
INSERT INTO "attempts" VALUES('377ada540662',1,'failed','RuntimeError: the plug-in is broken','local','13071','laptop',13076,'2026-11-23T10:42:49.239+00:00','2026-11-23T10:42:55.934+00:00','cpu',2.363,0.0,467927040,0,'           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/dropbench/adapters/timm_attention.py", line 34, in forward
    out = attend(q, k, v, self.site, training=self.training, mask=attn_mask, causal=is_causal)
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/dropbench/harness/attention.py", line 94, in attend
    fast = site.regularizer.attend(q, k, v, site, mask=joined, scale=scale)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/dropbench/harness/regularizers/drop.py", line 56, in attend
    kept = ~self.dropped((*q.shape[:-1], k.shape[-2]), site, q.device)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/bench/trouble.py", line 12, in dropped
    self.strike(shape[0])
  File "/home/me/bench/trouble.py", line 21, in strike
    raise RuntimeError("the plug-in is broken")
RuntimeError: the plug-in is broken','b9350f0ff75746d1b7b142f45a7212be',1.34,1,0,1);
INSERT INTO "attempts" VALUES('4e2852ef74c8',1,'succeeded',NULL,'local','11985','laptop',11989,'2026-11-23T10:40:43.584+00:00','2026-11-23T10:40:50.315+00:00','cpu',3.14,0.0,575545344,8,NULL,'2401cd58dea44e3eb7558740fe747488',0.858,1,0,1);
INSERT INTO "attempts" VALUES('50582c8c14d8',1,'succeeded',NULL,'local','11722','laptop',11729,'2026-11-23T10:40:26.507+00:00','2026-11-23T10:40:28.306+00:00','cpu',0.609,0.0,628178944,30,NULL,'726ca28b35584672be2fc00d1b5b4a69',14.995,1,0,1);
INSERT INTO "attempts" VALUES('5757005ecf10',1,'succeeded',NULL,'local','12816','laptop',12818,'2026-11-23T10:42:17.927+00:00','2026-11-23T10:42:29.962+00:00','cpu',4.212,0.0,625152000,14,NULL,'e92ee12b1db44df6a5998b61b93b8e9d',1.078,1,0,1);
INSERT INTO "attempts" VALUES('5df087724faf',1,'succeeded',NULL,'local','11722','laptop',11729,'2026-11-23T10:40:13.087+00:00','2026-11-23T10:40:26.424+00:00','cpu',4.169,0.0,624746496,30,NULL,'726ca28b35584672be2fc00d1b5b4a69',1.574,1,0,1);
INSERT INTO "attempts" VALUES('5f8ec7625f84',1,'cancelled','cancelled by the user','local','19009','laptop',19016,'2026-11-23T10:48:27.342+00:00','2026-11-23T10:48:40.699+00:00','cpu',1.986,0.0,417738752,4,NULL,'5de86d3f0cbe4f318edabdeddffd1925',1.003,1,0,1);
INSERT INTO "attempts" VALUES('6ed11fc605a8',1,'cancelled','cancelled by the user','local','13686','laptop',13689,'2026-11-23T10:43:51.205+00:00','2026-11-23T10:44:00.906+00:00','cpu',2.499,0.0,484024320,0,NULL,'5e190ae1f0604e2ca502980fb4793f57',1.315,1,0,1);
INSERT INTO "attempts" VALUES('7182ac0b540a',1,'succeeded',NULL,'local','11724','laptop',11730,'2026-11-23T10:40:29.342+00:00','2026-11-23T10:40:31.310+00:00','cpu',0.601,0.0,631177216,30,NULL,'726ca28b35584672be2fc00d1b5b4a69',17.83,1,0,1);
INSERT INTO "attempts" VALUES('8541276a6dba',1,'succeeded',NULL,'local','12153','laptop',12159,'2026-11-23T10:40:58.543+00:00','2026-11-23T10:41:13.295+00:00','cpu',3.541,0.0,576790528,8,NULL,'349b7c0e43c8470e85737e432f236284',0.941,1,0,1);
INSERT INTO "attempts" VALUES('8b4bc5c18f6c',1,'succeeded',NULL,'local','11724','laptop',11730,'2026-11-23T10:40:13.356+00:00','2026-11-23T10:40:27.111+00:00','cpu',4.179,0.0,624844800,30,NULL,'726ca28b35584672be2fc00d1b5b4a69',1.843,1,0,1);
INSERT INTO "attempts" VALUES('aeda935e8625',1,'succeeded',NULL,'local','12715','laptop',12720,'2026-11-23T10:41:59.047+00:00','2026-11-23T10:42:05.497+00:00','cpu',2.587,0.0,488710144,4,NULL,'f2dee99441d04ab0b41d18fa336f65e3',1.056,1,0,1);
INSERT INTO "attempts" VALUES('af025e91fbbe',1,'succeeded',NULL,'local','12518','laptop',12522,'2026-11-23T10:41:34.620+00:00','2026-11-23T10:41:46.402+00:00','cpu',2.805,0.0,476573696,4,NULL,'dc5666ee4433462eb7938751687728a8',1.941,1,0,1);
INSERT INTO "attempts" VALUES('bb049321cbaa',1,'succeeded',NULL,'local','12520','laptop',12523,'2026-11-23T10:41:34.513+00:00','2026-11-23T10:41:46.408+00:00','cpu',2.938,0.0,494108672,4,NULL,'dc5666ee4433462eb7938751687728a8',1.834,1,0,1);
INSERT INTO "attempts" VALUES('db110e6b6fec',1,'succeeded',NULL,'local','11724','laptop',11730,'2026-11-23T10:40:27.199+00:00','2026-11-23T10:40:29.246+00:00','cpu',0.632,0.0,627761152,30,NULL,'726ca28b35584672be2fc00d1b5b4a69',15.686,1,0,1);
INSERT INTO "attempts" VALUES('e0f7f08b7b09',1,'succeeded',NULL,'local','18644','laptop',18657,'2026-11-23T10:48:13.687+00:00','2026-11-23T10:48:18.311+00:00','cpu',1.964,0.0,417050624,6,NULL,'3d9dfb2fbb8f4e72b12d5a631f667709',1.24,1,0,1);
INSERT INTO "attempts" VALUES('eb444ec570fd',1,'succeeded',NULL,'local','11986','laptop',11990,'2026-11-23T10:40:43.509+00:00','2026-11-23T10:40:50.183+00:00','cpu',3.149,0.0,575275008,8,NULL,'2401cd58dea44e3eb7558740fe747488',0.783,1,0,1);
INSERT INTO "attempts" VALUES('fd8845166f09',1,'succeeded',NULL,'local','18645','laptop',18654,'2026-11-23T10:48:13.772+00:00','2026-11-23T10:48:18.887+00:00','cpu',2.101,0.0,417800192,6,NULL,'3d9dfb2fbb8f4e72b12d5a631f667709',1.325,1,0,1);
CREATE TABLE configs (
	id VARCHAR(12) NOT NULL, 
	task TEXT NOT NULL, 
	data TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	model TEXT NOT NULL, 
	regularizer TEXT NOT NULL, 
	params JSON NOT NULL, 
	schedule TEXT NOT NULL, 
	align TEXT NOT NULL, 
	preset TEXT NOT NULL, 
	overrides JSON NOT NULL, 
	config JSON NOT NULL, 
	CONSTRAINT pk_configs PRIMARY KEY (id)
);
INSERT INTO "configs" VALUES('2663b2e54be7','image-classification','digits','811007347250','vit-digits','dropkey','{"ratio": 0.3, "rescale": "renormalize", "unit": "element", "window": 1}','decreasing','none','mini','{"steps": 30, "evaluate_every": 10, "lr": 0.01, "model.depth": 2}','{"task": "image-classification", "data": {"name": "digits", "fingerprint": "811007347250"}, "model": "vit-digits", "weights": null, "regularizer": {"name": "dropkey", "params": {"ratio": 0.3, "rescale": "renormalize", "unit": "element", "window": 1}}, "schedule": "decreasing", "align": "none", "preset": "mini", "overrides": {"steps": 30, "evaluate_every": 10, "lr": 0.01, "model.depth": 2}, "recipe": {"steps": 30, "batch_size": 64, "accumulate": 1, "optimizer": "adamw", "lr": 0.01, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.9, "weight_decay": 0.05, "lr_schedule": "cosine", "warmup": 0.1, "label_smoothing": 0.1, "amp": "no", "evaluate_every": 10, "model": {"depth": 2}, "image_size": 8, "channels": 1, "flip": false, "crop_padding": 0, "resized_crop": false, "erase": 0.0, "mixup": 0.0, "cutmix": 0.0}, "plugins": {}}');
INSERT INTO "configs" VALUES('47848aedf313','image-classification','digits','811007347250','vit-digits','dropself','{"ratio": 0.3, "rescale": "renormalize"}','constant','none','mini','{"steps": 30, "evaluate_every": 10, "lr": 0.01, "model.depth": 2}','{"task": "image-classification", "data": {"name": "digits", "fingerprint": "811007347250"}, "model": "vit-digits", "weights": null, "regularizer": {"name": "dropself", "params": {"ratio": 0.3, "rescale": "renormalize"}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {"steps": 30, "evaluate_every": 10, "lr": 0.01, "model.depth": 2}, "recipe": {"steps": 30, "batch_size": 64, "accumulate": 1, "optimizer": "adamw", "lr": 0.01, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.9, "weight_decay": 0.05, "lr_schedule": "cosine", "warmup": 0.1, "label_smoothing": 0.1, "amp": "no", "evaluate_every": 10, "model": {"depth": 2}, "image_size": 8, "channels": 1, "flip": false, "crop_padding": 0, "resized_crop": false, "erase": 0.0, "mixup": 0.0, "cutmix": 0.0}, "plugins": {"my.py": "a1ac5a0ef6608b2b256ae8aa0466edef09f2e0edeca79c3cdac9f17f9939906b"}}');
INSERT INTO "configs" VALUES('ebacd1f72637','image-classification','digits','811007347250','vit-digits','none','{}','constant','none','mini','{"steps": 30, "evaluate_every": 10, "lr": 0.01, "model.depth": 2}','{"task": "image-classification", "data": {"name": "digits", "fingerprint": "811007347250"}, "model": "vit-digits", "weights": null, "regularizer": {"name": "none", "params": {}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {"steps": 30, "evaluate_every": 10, "lr": 0.01, "model.depth": 2}, "recipe": {"steps": 30, "batch_size": 64, "accumulate": 1, "optimizer": "adamw", "lr": 0.01, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.9, "weight_decay": 0.05, "lr_schedule": "cosine", "warmup": 0.1, "label_smoothing": 0.1, "amp": "no", "evaluate_every": 10, "model": {"depth": 2}, "image_size": 8, "channels": 1, "flip": false, "crop_padding": 0, "resized_crop": false, "erase": 0.0, "mixup": 0.0, "cutmix": 0.0}, "plugins": {}}');
INSERT INTO "configs" VALUES('c8744a2bbad2','text-classification','trec-synthetic','9d7ac6f12518','text-transformer','none','{}','constant','none','mini','{"evaluate_every": 2, "steps": 8, "lr": 0.003}','{"task": "text-classification", "data": {"name": "trec-synthetic", "fingerprint": "9d7ac6f12518"}, "model": "text-transformer", "weights": null, "regularizer": {"name": "none", "params": {}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {"evaluate_every": 2, "steps": 8, "lr": 0.003}, "recipe": {"steps": 8, "batch_size": 32, "accumulate": 1, "optimizer": "adam", "lr": 0.003, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.98, "momentum": 0.9, "weight_decay": 0.0, "lr_schedule": "cosine", "warmup": 0.1, "clip_norm": 1.0, "label_smoothing": 0.0, "amp": "no", "evaluate_every": 2, "model": {"layers": 2, "dim": 128, "heads": 4, "feedforward": 256, "dropout": 0.2, "pooling": "max"}, "max_length": 64, "min_count": 2, "lowercase": true, "word_dropout": 0.2, "freeze_vectors": false}, "plugins": {}}');
INSERT INTO "configs" VALUES('7876b8482b91','text-classification','trec-synthetic','9d7ac6f12518','text-transformer','dropattention-c','{"ratio": 0.3, "rescale": "renormalize", "unit": "column", "window": 2}','constant','monte-carlo-3','mini','{"evaluate_every": 2, "steps": 8, "lr": 0.003}','{"task": "text-classification", "data": {"name": "trec-synthetic", "fingerprint": "9d7ac6f12518"}, "model": "text-transformer", "weights": null, "regularizer": {"name": "dropattention-c", "params": {"ratio": 0.3, "rescale": "renormalize", "unit": "column", "window": 2}}, "schedule": "constant", "align": "monte-carlo-3", "preset": "mini", "overrides": {"evaluate_every": 2, "steps": 8, "lr": 0.003}, "recipe": {"steps": 8, "batch_size": 32, "accumulate": 1, "optimizer": "adam", "lr": 0.003, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.98, "momentum": 0.9, "weight_decay": 0.0, "lr_schedule": "cosine", "warmup": 0.1, "clip_norm": 1.0, "label_smoothing": 0.0, "amp": "no", "evaluate_every": 2, "model": {"layers": 2, "dim": 128, "heads": 4, "feedforward": 256, "dropout": 0.2, "pooling": "max"}, "max_length": 64, "min_count": 2, "lowercase": true, "word_dropout": 0.2, "freeze_vectors": false}, "plugins": {}}');
INSERT INTO "configs" VALUES('808a4bb9be9a','language-modelling','wikitext-2-synthetic','74fd34bb7f64','learned-dropout-lm','none','{}','constant','none','mini','{"evaluate_every": 2, "steps": 4, "accumulate": 2, "evaluation_batches": 1}','{"task": "language-modelling", "data": {"name": "wikitext-2-synthetic", "fingerprint": "74fd34bb7f64"}, "model": "learned-dropout-lm", "weights": null, "regularizer": {"name": "none", "params": {}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {"evaluate_every": 2, "steps": 4, "accumulate": 2, "evaluation_batches": 1}, "recipe": {"steps": 4, "batch_size": 16, "accumulate": 2, "optimizer": "adamw", "lr": 0.003, "min_lr": 0.0003, "beta1": 0.9, "beta2": 0.95, "momentum": 0.9, "weight_decay": 0.1, "lr_schedule": "cosine", "warmup": 50.0, "label_smoothing": 0.0, "amp": "no", "evaluate_every": 2, "model": {"layers": 4, "dim": 96, "heads": 6}, "context": 64, "tokenizer": "bpe", "vocabulary": 2000, "evaluation_batches": 1}, "plugins": {}}');
INSERT INTO "configs" VALUES('8590df764775','language-modelling','wikitext-2-synthetic','74fd34bb7f64','learned-dropout-lm','learned-dropout','{"where": "feed-forward", "mask_rounding": "noise-and-linear", "sigmoid_scale": 60.0, "shift_init": 0.0, "harmonics": 1, "dropout_input": "hidden-state", "detached_input": false, "evaluation": "deterministic", "heads": 0, "bias": false, "l1_norm_penalty": "squared", "max_coeff": 0.2, "min_coeff": 0.0, "exp_rate": 0.0, "entropy_penalty": false, "entropy_max_coeff": 0.1, "entropy_min_coeff": 0.0, "entropy_exp_rate": 0.0}','constant','none','mini','{"evaluate_every": 2, "steps": 4, "accumulate": 2, "evaluation_batches": 1}','{"task": "language-modelling", "data": {"name": "wikitext-2-synthetic", "fingerprint": "74fd34bb7f64"}, "model": "learned-dropout-lm", "weights": null, "regularizer": {"name": "learned-dropout", "params": {"where": "feed-forward", "mask_rounding": "noise-and-linear", "sigmoid_scale": 60.0, "shift_init": 0.0, "harmonics": 1, "dropout_input": "hidden-state", "detached_input": false, "evaluation": "deterministic", "heads": 0, "bias": false, "l1_norm_penalty": "squared", "max_coeff": 0.2, "min_coeff": 0.0, "exp_rate": 0.0, "entropy_penalty": false, "entropy_max_coeff": 0.1, "entropy_min_coeff": 0.0, "entropy_exp_rate": 0.0}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {"evaluate_every": 2, "steps": 4, "accumulate": 2, "evaluation_batches": 1}, "recipe": {"steps": 4, "batch_size": 16, "accumulate": 2, "optimizer": "adamw", "lr": 0.003, "min_lr": 0.0003, "beta1": 0.9, "beta2": 0.95, "momentum": 0.9, "weight_decay": 0.1, "lr_schedule": "cosine", "warmup": 50.0, "label_smoothing": 0.0, "amp": "no", "evaluate_every": 2, "model": {"layers": 4, "dim": 96, "heads": 6}, "context": 64, "tokenizer": "bpe", "vocabulary": 2000, "evaluation_batches": 1}, "plugins": {}}');
INSERT INTO "configs" VALUES('85c5d5a76df1','sequence-labelling','conll2000-synthetic','c3dd70762e3f','text-transformer','dropattention-e','{"ratio": 0.3, "rescale": "renormalize", "unit": "element", "window": 3}','constant','finetune','mini','{"evaluate_every": 2, "steps": 8, "lr": 0.003, "finetune_epochs": 1}','{"task": "sequence-labelling", "data": {"name": "conll2000-synthetic", "fingerprint": "c3dd70762e3f"}, "model": "text-transformer", "weights": null, "regularizer": {"name": "dropattention-e", "params": {"ratio": 0.3, "rescale": "renormalize", "unit": "element", "window": 3}}, "schedule": "constant", "align": "finetune", "preset": "mini", "overrides": {"evaluate_every": 2, "steps": 8, "lr": 0.003, "finetune_epochs": 1}, "recipe": {"steps": 8, "batch_size": 32, "accumulate": 1, "optimizer": "adam", "lr": 0.003, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.98, "momentum": 0.9, "weight_decay": 0.0, "lr_schedule": "cosine", "warmup": 0.1, "clip_norm": 1.0, "label_smoothing": 0.0, "amp": "no", "evaluate_every": 2, "finetune_epochs": 1, "finetune_lr": 1e-05, "model": {"layers": 3, "dim": 192, "heads": 6, "feedforward": 384, "dropout": 0.1, "scale_embeddings": false}, "max_length": 128, "min_count": 2, "lowercase": true, "word_dropout": 0.0, "freeze_vectors": false, "features": ["suffix3", "case", "pos"]}, "plugins": {}}');
INSERT INTO "configs" VALUES('80ab0d7d692e','image-classification','digits','811007347250','vit-digits','broken','{"ratio": 0.1, "rescale": "renormalize"}','constant','none','mini','{"evaluate_every": 2, "model.depth": 2, "steps": 4}','{"task": "image-classification", "data": {"name": "digits", "fingerprint": "811007347250"}, "model": "vit-digits", "weights": null, "regularizer": {"name": "broken", "params": {"ratio": 0.1, "rescale": "renormalize"}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {"evaluate_every": 2, "model.depth": 2, "steps": 4}, "recipe": {"steps": 4, "batch_size": 64, "accumulate": 1, "optimizer": "adamw", "lr": 0.003, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.9, "weight_decay": 0.05, "lr_schedule": "cosine", "warmup": 0.1, "label_smoothing": 0.1, "amp": "no", "evaluate_every": 2, "model": {"depth": 2}, "image_size": 8, "channels": 1, "flip": false, "crop_padding": 0, "resized_crop": false, "erase": 0.0, "mixup": 0.0, "cutmix": 0.0}, "plugins": {"trouble.py": "34867cd3c50ef5e981f5eb8a2d6797aec1e729044652977eaf24281cb22830a9"}}');
INSERT INTO "configs" VALUES('e6363c1276d5','image-classification','digits','811007347250','vit-digits','large','{"ratio": 0.1, "rescale": "renormalize"}','constant','none','mini','{"evaluate_every": 2, "model.depth": 2, "steps": 4}','{"task": "image-classification", "data": {"name": "digits", "fingerprint": "811007347250"}, "model": "vit-digits", "weights": null, "regularizer": {"name": "large", "params": {"ratio": 0.1, "rescale": "renormalize"}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {"evaluate_every": 2, "model.depth": 2, "steps": 4}, "recipe": {"steps": 4, "batch_size": 64, "accumulate": 1, "optimizer": "adamw", "lr": 0.003, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.9, "weight_decay": 0.05, "lr_schedule": "cosine", "warmup": 0.1, "label_smoothing": 0.1, "amp": "no", "evaluate_every": 2, "model": {"depth": 2}, "image_size": 8, "channels": 1, "flip": false, "crop_padding": 0, "resized_crop": false, "erase": 0.0, "mixup": 0.0, "cutmix": 0.0}, "plugins": {"trouble.py": "34867cd3c50ef5e981f5eb8a2d6797aec1e729044652977eaf24281cb22830a9"}}');
INSERT INTO "configs" VALUES('4cc00f0ae2d6','image-classification','digits','811007347250','vit-digits','slow','{"ratio": 0.1, "rescale": "renormalize"}','constant','none','mini','{"evaluate_every": 2, "model.depth": 2, "steps": 400}','{"task": "image-classification", "data": {"name": "digits", "fingerprint": "811007347250"}, "model": "vit-digits", "weights": null, "regularizer": {"name": "slow", "params": {"ratio": 0.1, "rescale": "renormalize"}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {"evaluate_every": 2, "model.depth": 2, "steps": 400}, "recipe": {"steps": 400, "batch_size": 64, "accumulate": 1, "optimizer": "adamw", "lr": 0.003, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.9, "weight_decay": 0.05, "lr_schedule": "cosine", "warmup": 0.1, "label_smoothing": 0.1, "amp": "no", "evaluate_every": 2, "model": {"depth": 2}, "image_size": 8, "channels": 1, "flip": false, "crop_padding": 0, "resized_crop": false, "erase": 0.0, "mixup": 0.0, "cutmix": 0.0}, "plugins": {"trouble.py": "34867cd3c50ef5e981f5eb8a2d6797aec1e729044652977eaf24281cb22830a9"}}');
INSERT INTO "configs" VALUES('21232f47e436','tiny','tiny','000000000000','tiny-model','dropkey','{"ratio": 0.3, "rescale": "renormalize", "unit": "element", "window": 1}','constant','none','mini','{}','{"task": "tiny", "data": {"name": "tiny", "fingerprint": "000000000000"}, "model": "tiny-model", "weights": null, "regularizer": {"name": "dropkey", "params": {"ratio": 0.3, "rescale": "renormalize", "unit": "element", "window": 1}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {}, "recipe": {"epochs": 3, "batch_size": 8, "accumulate": 2, "optimizer": "adamw", "lr": 0.05, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.9, "weight_decay": 0.0, "lr_schedule": "cosine", "warmup": 0.0, "label_smoothing": 0.0, "amp": "no", "finetune_epochs": 50, "finetune_lr": 1e-05, "model": {}}, "plugins": {}}');
INSERT INTO "configs" VALUES('997b4fdbbe29','tiny','tiny','000000000000','tiny-model','none','{}','constant','none','mini','{}','{"task": "tiny", "data": {"name": "tiny", "fingerprint": "000000000000"}, "model": "tiny-model", "weights": null, "regularizer": {"name": "none", "params": {}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {}, "recipe": {"epochs": 3, "batch_size": 8, "accumulate": 2, "optimizer": "adamw", "lr": 0.05, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.9, "weight_decay": 0.0, "lr_schedule": "cosine", "warmup": 0.0, "label_smoothing": 0.0, "amp": "no", "finetune_epochs": 50, "finetune_lr": 1e-05, "model": {}}, "plugins": {}}');
INSERT INTO "configs" VALUES('cb94a7f9aad2','tiny','tiny','000000000000','tiny-model','dropkey','{"ratio": 0.3, "rescale": "renormalize", "unit": "element", "window": 1}','constant','none','mini','{"epochs": 6, "evaluate_every": 3}','{"task": "tiny", "data": {"name": "tiny", "fingerprint": "000000000000"}, "model": "tiny-model", "weights": null, "regularizer": {"name": "dropkey", "params": {"ratio": 0.3, "rescale": "renormalize", "unit": "element", "window": 1}}, "schedule": "constant", "align": "none", "preset": "mini", "overrides": {"epochs": 6, "evaluate_every": 3}, "recipe": {"epochs": 6, "batch_size": 8, "accumulate": 2, "optimizer": "adamw", "lr": 0.05, "min_lr": 0.0, "beta1": 0.9, "beta2": 0.999, "momentum": 0.9, "weight_decay": 0.0, "lr_schedule": "cosine", "warmup": 0.0, "label_smoothing": 0.0, "amp": "no", "evaluate_every": 3, "finetune_epochs": 50, "finetune_lr": 1e-05, "model": {}}, "plugins": {}}');
CREATE TABLE memberships (
	suite VARCHAR(200) NOT NULL, 
	trial_id VARCHAR(12) NOT NULL, 
	CONSTRAINT pk_memberships PRIMARY KEY (suite, trial_id), 
	CONSTRAINT fk_memberships_trial_id FOREIGN KEY(trial_id) REFERENCES trials (id)
)
 WITHOUT ROWID

;
INSERT INTO "memberships" VALUES('small','07bdfbc0a08e');
INSERT INTO "memberships" VALUES('small','2b862a69bfe7');
INSERT INTO "memberships" VALUES('small','50582c8c14d8');
INSERT INTO "memberships" VALUES('small','5500cb5ec6ec');
INSERT INTO "memberships" VALUES('small','5ce51fa9dee9');
INSERT INTO "memberships" VALUES('small','5df087724faf');
INSERT INTO "memberships" VALUES('small','7182ac0b540a');
INSERT INTO "memberships" VALUES('small','8b4bc5c18f6c');
INSERT INTO "memberships" VALUES('small','db110e6b6fec');
INSERT INTO "memberships" VALUES('tiny','e0f7f08b7b09');
INSERT INTO "memberships" VALUES('tiny','fd8845166f09');
CREATE TABLE metrics (
	trial_id VARCHAR(12) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	step INTEGER NOT NULL, 
	value FLOAT, config_id VARCHAR(12), 
	CONSTRAINT pk_metrics PRIMARY KEY (trial_id, name, step), 
	CONSTRAINT fk_metrics_trial_id FOREIGN KEY(trial_id) REFERENCES trials (id)
)
 WITHOUT ROWID

;
INSERT INTO "metrics" VALUES('27fb30220a07','dev/accuracy',-1,3.61111111111111071636e+01,'7876b8482b91');
INSERT INTO "metrics" VALUES('27fb30220a07','dev/accuracy',2,1.66666666666666642981e+01,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','dev/accuracy',4,2.77777777777777785668e+01,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','dev/accuracy',6,3.33333333333333285968e+01,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','dev/accuracy',8,3.61111111111111071636e+01,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','test/accuracy',-1,3.22222222222222214331e+01,'7876b8482b91');
INSERT INTO "metrics" VALUES('27fb30220a07','train/loss',-1,1.83247506618499755859e+00,'7876b8482b91');
INSERT INTO "metrics" VALUES('27fb30220a07','train/loss',1,2.8743038177490234375e+00,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/loss',2,1.93888401985168457031e+00,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/loss',3,1.99457955360412597656e+00,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/loss',4,2.05883574485778808593e+00,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/loss',5,1.765899658203125e+00,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/loss',6,1.81963038444519042968e+00,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/loss',7,1.77952456474304199218e+00,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/loss',8,1.83247506618499755859e+00,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/lr',1,0.003,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/lr',2,2.99429204713761842188e-03,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/lr',3,2.79903810567665818284e-03,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/lr',4,2.36036465452656900668e-03,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/lr',5,1.76047226650039544126e-03,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/lr',6,1.11177143234621883527e-03,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/lr',7,0.000535818585470191,NULL);
INSERT INTO "metrics" VALUES('27fb30220a07','train/lr',8,1.40538319445025094338e-04,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','dev/accuracy',-1,10.0,'47848aedf313');
INSERT INTO "metrics" VALUES('2b862a69bfe7','dev/accuracy',10,10.0,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','dev/accuracy',20,8.88888888888889,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','dev/accuracy',30,10.0,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','test/accuracy',-1,1.00278551532033421977e+01,'47848aedf313');
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',-1,2.31520605087280273437e+00,'47848aedf313');
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',1,2.32187557220459,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',2,2.35642123222351074218e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',3,2.32681822776794433593e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',4,2.38767242431640625e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',5,2.336902618408203125e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',6,2.33622121810913085937e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',7,2.38113546371459960937e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',8,2.33504581451416,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',9,2.36741375923156738281e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',10,2.37826061248779296875e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',11,2.314022064208984375e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',12,2.28472948074340820312e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',13,2.33286237716674804687e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',14,2.35993051528930664062e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',15,2.32143998146057128906e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',16,2.39406418800354,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',17,2.31611275672912597656e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',18,2.35989642143249511718e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',19,2.31714653968811035156e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',20,2.30647015571594238281e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',21,2.289043426513671875e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',22,2.30738520622253417968e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',23,2.33816432952880859375e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',24,2.32625460624694824218e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',25,2.29111385345459,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',26,2.31608867645263671875e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',27,2.32082867622375488281e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',28,2.30665159225463867187e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',29,2.33714127540588378906e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/loss',30,2.31520605087280273437e+00,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',1,0.0025,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',2,0.005,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',3,0.0075,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',4,0.01,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',5,9.9661917887097148383e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',6,9.86522435289911847622e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',7,9.69846310392954297219e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',8,9.46816320161706151403e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',9,9.1774390570646818821e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',10,0.00883022221559489,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',11,8.43120818934366828001e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',12,7.98579295851393165805e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',13,0.0075,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',14,6.98039883019578415168e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',15,6.43401616355545203501e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',16,5.86824088833465262737e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',17,5.29072414455237886865e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',18,4.70927585544762133951e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',19,4.13175911166534844815e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',20,3.56598383644455034155e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',21,3.01960116980421605648e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',22,2.50000000000000135308e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',23,2.01420704148607028483e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',24,1.56879181065633257867e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',25,1.16977778440511040979e-03,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',26,8.22560942935318651324e-04,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',27,5.3183679838293923623e-04,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',28,3.01536896070458428596e-04,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',29,1.34775647100880973001e-04,NULL);
INSERT INTO "metrics" VALUES('2b862a69bfe7','train/lr',30,3.38082112902848819745e-05,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/bits-a-byte',-1,1.65653376547880570868e+00,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/bits-a-byte',2,1.68149196732300931778e+00,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/bits-a-byte',4,1.65653376547880570868e+00,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/kept-in-evaluation',-1,1.0,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/kept-in-evaluation',2,1.0,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/kept-in-evaluation',4,1.0,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/loss',-1,7.45673942565918,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/loss',2,7.56908655166626,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/loss',4,7.45673942565918,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/perplexity',-1,1.73149318104904841671e+03,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/perplexity',2,1937.36978585096,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/perplexity',4,1.73149318104904841671e+03,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/unigram-loss',-1,5.01426978850860383118e+00,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/unigram-loss',2,5.01426978850860383118e+00,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','dev/unigram-loss',4,5.01426978850860383118e+00,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','test/active-parameters',-1,746208.0,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','test/bits-a-byte',-1,1.65245460709898539519e+00,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','test/kept',-1,1.0,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','test/kept-in-evaluation',-1,1.0,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','test/loss',-1,7.44680547714233398437e+00,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','test/parameters',-1,746208.0,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','test/perplexity',-1,1714.37776949013,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','test/train-loss',-1,7.4362735748291015625e+00,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','test/unigram-loss',-1,5.00757767633969308462e+00,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','train/loss',-1,7.6111159324646,'8590df764775');
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','train/loss',1,7.72852993011474609375e+00,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','train/loss',2,7.69565057754516601562e+00,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','train/loss',3,7.65361309051513671875e+00,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','train/loss',4,7.6111159324646,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','train/lr',1,5.88235294117647075032e-05,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','train/lr',2,1.1764705882352941501e-04,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','train/lr',3,1.76470588235294129292e-04,NULL);
INSERT INTO "metrics" VALUES('2ed94e0cd8ee','train/lr',4,2.35294117647058830021e-04,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','dev/accuracy',-1,15.0,'e6363c1276d5');
INSERT INTO "metrics" VALUES('31d10206d3e6','dev/accuracy',2,10.0,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','dev/accuracy',4,15.0,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','test/accuracy',-1,1.36490250696378829782e+01,'e6363c1276d5');
INSERT INTO "metrics" VALUES('31d10206d3e6','train/loss',-1,2.33732843399047851562e+00,'e6363c1276d5');
INSERT INTO "metrics" VALUES('31d10206d3e6','train/loss',1,2.32146978378295898437e+00,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','train/loss',2,2.35577726364135742187e+00,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','train/loss',3,2.32297754287719726562e+00,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','train/loss',4,2.33732843399047851562e+00,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','train/lr',1,0.003,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','train/lr',2,2.79903810567665818284e-03,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','train/lr',3,1.76047226650039544126e-03,NULL);
INSERT INTO "metrics" VALUES('31d10206d3e6','train/lr',4,0.000535818585470191,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','dev/accuracy',-1,3.33333333333333285968e+01,'c8744a2bbad2');
INSERT INTO "metrics" VALUES('4e2852ef74c8','dev/accuracy',2,1.66666666666666642981e+01,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','dev/accuracy',4,25.0,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','dev/accuracy',6,3.05555555555555571336e+01,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','dev/accuracy',8,3.33333333333333285968e+01,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','test/accuracy',-1,3.88888888888888928363e+01,'c8744a2bbad2');
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/loss',-1,1.69123017787933349609e+00,'c8744a2bbad2');
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/loss',1,2.80296397209167480468e+00,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/loss',2,1.8424993753433227539e+00,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/loss',3,2.08254098892211914062e+00,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/loss',4,1.84203445911407470703e+00,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/loss',5,1.78602373600006103515e+00,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/loss',6,1.87307822704315185546e+00,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/loss',7,1.64940357208251953125e+00,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/loss',8,1.69123017787933349609e+00,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/lr',1,0.003,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/lr',2,2.99429204713761842188e-03,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/lr',3,2.79903810567665818284e-03,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/lr',4,2.36036465452656900668e-03,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/lr',5,1.76047226650039544126e-03,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/lr',6,1.11177143234621883527e-03,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/lr',7,0.000535818585470191,NULL);
INSERT INTO "metrics" VALUES('4e2852ef74c8','train/lr',8,1.40538319445025094338e-04,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','dev/accuracy',-1,1.38888888888888892834e+01,'2663b2e54be7');
INSERT INTO "metrics" VALUES('50582c8c14d8','dev/accuracy',10,10.0,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','dev/accuracy',20,1.38888888888888892834e+01,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','dev/accuracy',30,10.0,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','entropy/encoder-self.1',-1,1.11524465719237930727e+00,'2663b2e54be7');
INSERT INTO "metrics" VALUES('50582c8c14d8','entropy/encoder-self.2',-1,2.68805262207984929645e+00,'2663b2e54be7');
INSERT INTO "metrics" VALUES('50582c8c14d8','entropy/last',-1,2.68805262207984929645e+00,'2663b2e54be7');
INSERT INTO "metrics" VALUES('50582c8c14d8','entropy/mean',-1,1.90164863963611430186e+00,'2663b2e54be7');
INSERT INTO "metrics" VALUES('50582c8c14d8','first-key/encoder-self.1',-1,4.93777282536029815673e-02,'2663b2e54be7');
INSERT INTO "metrics" VALUES('50582c8c14d8','first-key/encoder-self.2',-1,5.20872436463832855224e-02,'2663b2e54be7');
INSERT INTO "metrics" VALUES('50582c8c14d8','test/accuracy',-1,1.420612813370473404e+01,'2663b2e54be7');
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',-1,2.3111972808837890625e+00,'2663b2e54be7');
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',1,2.32206940650939941406e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',2,2.36189246177673339843e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',3,2.32828664779663085937e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',4,2.38944983482360839843e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',5,2.34029150009155273437e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',6,2.33882617950439453125e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',7,2.38276243209838867187e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',8,2.3424072265625,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',9,2.35790657997131347656e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',10,2.36881303787231445312e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',11,2.31231546401977539062e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',12,2.29210829734802246093e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',13,2.33523774147033691406e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',14,2.36116433143615722656e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',15,2.32403254508972167968e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',16,2.38925218582153320312e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',17,2.3180694580078125e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',18,2.36131119728088378906e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',19,2.31756711006164550781e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',20,2.30413675308227539062e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',21,2.2842769622802734375e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',22,2.30452990531921386718e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',23,2.33489966392517089843e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',24,2.32886099815368652343e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',25,2.29144024848938,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',26,2.31579804420471191406e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',27,2.32375741004943847656e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',28,2.30706739425659179687e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',29,2.33631658554077148437e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/loss',30,2.3111972808837890625e+00,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',1,0.0025,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',2,0.005,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',3,0.0075,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',4,0.01,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',5,9.9661917887097148383e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',6,9.86522435289911847622e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',7,9.69846310392954297219e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',8,9.46816320161706151403e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',9,9.1774390570646818821e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',10,0.00883022221559489,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',11,8.43120818934366828001e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',12,7.98579295851393165805e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',13,0.0075,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',14,6.98039883019578415168e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',15,6.43401616355545203501e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',16,5.86824088833465262737e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',17,5.29072414455237886865e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',18,4.70927585544762133951e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',19,4.13175911166534844815e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',20,3.56598383644455034155e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',21,3.01960116980421605648e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',22,2.50000000000000135308e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',23,2.01420704148607028483e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',24,1.56879181065633257867e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',25,1.16977778440511040979e-03,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',26,8.22560942935318651324e-04,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',27,5.3183679838293923623e-04,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',28,3.01536896070458428596e-04,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',29,1.34775647100880973001e-04,NULL);
INSERT INTO "metrics" VALUES('50582c8c14d8','train/lr',30,3.38082112902848819745e-05,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/accuracy',-1,5.2254641909814324662e+01,'85c5d5a76df1');
INSERT INTO "metrics" VALUES('5757005ecf10','dev/accuracy',2,5.2254641909814324662e+01,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/accuracy',4,5.2254641909814324662e+01,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/accuracy',6,5.2254641909814324662e+01,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/accuracy',8,5.2254641909814324662e+01,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/accuracy',10,5.2254641909814324662e+01,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/accuracy',12,5.2254641909814324662e+01,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/accuracy',14,5.2254641909814324662e+01,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/f1',-1,0.0,'85c5d5a76df1');
INSERT INTO "metrics" VALUES('5757005ecf10','dev/f1',2,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/f1',4,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/f1',6,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/f1',8,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/f1',10,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/f1',12,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/f1',14,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/precision',-1,0.0,'85c5d5a76df1');
INSERT INTO "metrics" VALUES('5757005ecf10','dev/precision',2,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/precision',4,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/precision',6,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/precision',8,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/precision',10,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/precision',12,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/precision',14,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/recall',-1,0.0,'85c5d5a76df1');
INSERT INTO "metrics" VALUES('5757005ecf10','dev/recall',2,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/recall',4,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/recall',6,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/recall',8,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/recall',10,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/recall',12,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','dev/recall',14,0.0,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','test/accuracy',-1,4.98484848484848512822e+01,'85c5d5a76df1');
INSERT INTO "metrics" VALUES('5757005ecf10','test/f1',-1,0.0,'85c5d5a76df1');
INSERT INTO "metrics" VALUES('5757005ecf10','test/precision',-1,0.0,'85c5d5a76df1');
INSERT INTO "metrics" VALUES('5757005ecf10','test/recall',-1,0.0,'85c5d5a76df1');
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',-1,2.19338703155517578125e+00,'85c5d5a76df1');
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',1,2.72082281112670898437e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',2,3.16896700859069824218e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',3,2.44081449508667,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',4,2.41093301773071289062e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',5,2.07713055610656738281e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',6,1.83967089653015136718e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',7,1.84505617618560791015e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',8,1.93314898014068603515e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',9,2.16986584663391113281e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',10,2.20808339118957519531e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',11,2.25669908523559570312e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',12,2.21207833290100097656e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',13,2.16112565994262695312e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/loss',14,2.19338703155517578125e+00,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',1,0.003,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',2,2.99429204713761842188e-03,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',3,2.79903810567665818284e-03,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',4,2.36036465452656900668e-03,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',5,1.76047226650039544126e-03,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',6,1.11177143234621883527e-03,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',7,0.000535818585470191,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',8,1.40538319445025094338e-04,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',9,1.0e-05,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',10,1.0e-05,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',11,1.0e-05,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',12,1.0e-05,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',13,1.0e-05,NULL);
INSERT INTO "metrics" VALUES('5757005ecf10','train/lr',14,1.0e-05,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','dev/accuracy',-1,10.0,'ebacd1f72637');
INSERT INTO "metrics" VALUES('5df087724faf','dev/accuracy',10,10.0,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','dev/accuracy',20,10.0,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','dev/accuracy',30,10.0,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','test/accuracy',-1,1.00278551532033421977e+01,'ebacd1f72637');
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',-1,2.31494092941284179687e+00,'ebacd1f72637');
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',1,2.32147002220153808593e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',2,2.35431694984436035156e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',3,2.32751989364624023437e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',4,2.38861775398254394531e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',5,2.33557820320129394531e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',6,2.3346271514892578125e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',7,2.381702423095703125e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',8,2.33422946929931640625e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',9,2.36786365509033203125e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',10,2.37761569023132324218e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',11,2.31279301643371582031e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',12,2.28521370887756347656e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',13,2.33331012725830078125e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',14,2.36070418357849121093e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',15,2.32193541526794433593e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',16,2.39449644088745117187e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',17,2.31403470039367675781e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',18,2.36043190956115722656e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',19,2.31662631034851074218e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',20,2.30526018142700195312e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',21,2.28815817832946777343e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',22,2.30655002593994140625e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',23,2.33669614791870117187e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',24,2.32560420036315917968e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',25,2.29024171829223632812e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',26,2.31825661659240722656e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',27,2.32101702690124511718e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',28,2.3060169219970703125e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',29,2.33649945259094238281e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/loss',30,2.31494092941284179687e+00,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',1,0.0025,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',2,0.005,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',3,0.0075,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',4,0.01,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',5,9.9661917887097148383e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',6,9.86522435289911847622e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',7,9.69846310392954297219e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',8,9.46816320161706151403e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',9,9.1774390570646818821e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',10,0.00883022221559489,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',11,8.43120818934366828001e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',12,7.98579295851393165805e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',13,0.0075,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',14,6.98039883019578415168e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',15,6.43401616355545203501e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',16,5.86824088833465262737e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',17,5.29072414455237886865e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',18,4.70927585544762133951e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',19,4.13175911166534844815e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',20,3.56598383644455034155e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',21,3.01960116980421605648e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',22,2.50000000000000135308e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',23,2.01420704148607028483e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',24,1.56879181065633257867e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',25,1.16977778440511040979e-03,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',26,8.22560942935318651324e-04,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',27,5.3183679838293923623e-04,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',28,3.01536896070458428596e-04,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',29,1.34775647100880973001e-04,NULL);
INSERT INTO "metrics" VALUES('5df087724faf','train/lr',30,3.38082112902848819745e-05,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','dev/accuracy',3,56.25,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','dev/loss',3,8.7555605173110961914e-01,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','train/loss',1,3.95128965377807617187e-01,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','train/loss',2,4.74339902400970458984e-01,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','train/loss',3,3.34692180156707763671e-01,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','train/loss',4,2.72855460643768310546e-01,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','train/lr',1,0.05,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','train/lr',2,4.91481456572267078053e-02,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','train/lr',3,4.66506350946109746291e-02,NULL);
INSERT INTO "metrics" VALUES('5f8ec7625f84','train/lr',4,4.26776695296636893184e-02,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','dev/accuracy',-1,1.72222222222222214331e+01,'47848aedf313');
INSERT INTO "metrics" VALUES('7182ac0b540a','dev/accuracy',10,10.0,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','dev/accuracy',20,1.38888888888888892834e+01,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','dev/accuracy',30,1.72222222222222214331e+01,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','test/accuracy',-1,1.58774373259052907774e+01,'47848aedf313');
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',-1,2.31015849113464355468e+00,'47848aedf313');
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',1,2.32378840446472167968e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',2,2.42566204071044921875e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',3,2.32422876358032226562e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',4,2.30117702484130859375e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',5,2.39864349365234375e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',6,2.35959982872009277343e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',7,2.35810780525207519531e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',8,2.32817029953002929687e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',9,2.35564064979553222656e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',10,2.36897873878479,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',11,2.32555079460144042968e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',12,2.35864400863647460937e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',13,2.33348298072814941406e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',14,2.36012220382690429687e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',15,2.28794360160827636718e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',16,2.28777170181274414062e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',17,2.3247051239013671875e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',18,2.3258533477783203125e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',19,2.2920684814453125e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',20,2.3103790283203125e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',21,2.27384662628173828125e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',22,2.28785538673400878906e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',23,2.34073472023010253906e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',24,2.3410816192626953125e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',25,2.30470919609069824218e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',26,2.30904173851013183593e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',27,2.32441163063049316406e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',28,2.30272078514099121093e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',29,2.32068705558776855468e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/loss',30,2.31015849113464355468e+00,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',1,0.0025,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',2,0.005,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',3,0.0075,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',4,0.01,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',5,9.9661917887097148383e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',6,9.86522435289911847622e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',7,9.69846310392954297219e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',8,9.46816320161706151403e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',9,9.1774390570646818821e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',10,0.00883022221559489,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',11,8.43120818934366828001e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',12,7.98579295851393165805e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',13,0.0075,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',14,6.98039883019578415168e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',15,6.43401616355545203501e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',16,5.86824088833465262737e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',17,5.29072414455237886865e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',18,4.70927585544762133951e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',19,4.13175911166534844815e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',20,3.56598383644455034155e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',21,3.01960116980421605648e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',22,2.50000000000000135308e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',23,2.01420704148607028483e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',24,1.56879181065633257867e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',25,1.16977778440511040979e-03,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',26,8.22560942935318651324e-04,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',27,5.3183679838293923623e-04,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',28,3.01536896070458428596e-04,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',29,1.34775647100880973001e-04,NULL);
INSERT INTO "metrics" VALUES('7182ac0b540a','train/lr',30,3.38082112902848819745e-05,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','dev/accuracy',-1,2.77777777777777785668e+01,'7876b8482b91');
INSERT INTO "metrics" VALUES('8541276a6dba','dev/accuracy',2,25.0,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','dev/accuracy',4,25.0,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','dev/accuracy',6,3.05555555555555571336e+01,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','dev/accuracy',8,3.33333333333333285968e+01,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','test/accuracy',-1,2.77777777777777785668e+01,'7876b8482b91');
INSERT INTO "metrics" VALUES('8541276a6dba','train/loss',-1,1.72600436210632324218e+00,'7876b8482b91');
INSERT INTO "metrics" VALUES('8541276a6dba','train/loss',1,2.09783434867858886718e+00,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/loss',2,2.35432338714599609375e+00,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/loss',3,2.14237141609191894531e+00,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/loss',4,2.0990352630615234375e+00,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/loss',5,1.76161646842956542968e+00,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/loss',6,1.94994258880615234375e+00,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/loss',7,1.85038983821868896484e+00,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/loss',8,1.72600436210632324218e+00,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/lr',1,0.003,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/lr',2,2.99429204713761842188e-03,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/lr',3,2.79903810567665818284e-03,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/lr',4,2.36036465452656900668e-03,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/lr',5,1.76047226650039544126e-03,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/lr',6,1.11177143234621883527e-03,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/lr',7,0.000535818585470191,NULL);
INSERT INTO "metrics" VALUES('8541276a6dba','train/lr',8,1.40538319445025094338e-04,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','dev/accuracy',-1,1.77777777777777785668e+01,'ebacd1f72637');
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','dev/accuracy',10,10.0,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','dev/accuracy',20,1.38888888888888892834e+01,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','dev/accuracy',30,1.77777777777777785668e+01,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','test/accuracy',-1,1.6434540389972145391e+01,'ebacd1f72637');
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',-1,2.31381011009216308593e+00,'ebacd1f72637');
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',1,2.32348704338073730468e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',2,2.424335479736328125e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',3,2.32426285743713378906e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',4,2.30165576934814453125e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',5,2.39648556709289550781e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',6,2.35938048362731933593e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',7,2.35918879508972167968e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',8,2.32794499397277832031e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',9,2.35628771781921386718e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',10,2.36974382400512695312e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',11,2.32477402687072753906e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',12,2.361545562744140625e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',13,2.33448886871337890625e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',14,2.36005163192749023437e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',15,2.28890919685363769531e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',16,2.28752422332763671875e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',17,2.32413983345031738281e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',18,2.32654476165771484375e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',19,2.29368925094604492187e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',20,2.31111669540405273437e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',21,2.27599453926086425781e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',22,2.28930997848510742187e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',23,2.33909296989440917968e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',24,2.34249925613403320312e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',25,2.30614137649536132812e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',26,2.30577254295349121093e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',27,2.32517957687377929687e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',28,2.29983997344970703125e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',29,2.31744384765625,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/loss',30,2.31381011009216308593e+00,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',1,0.0025,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',2,0.005,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',3,0.0075,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',4,0.01,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',5,9.9661917887097148383e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',6,9.86522435289911847622e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',7,9.69846310392954297219e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',8,9.46816320161706151403e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',9,9.1774390570646818821e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',10,0.00883022221559489,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',11,8.43120818934366828001e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',12,7.98579295851393165805e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',13,0.0075,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',14,6.98039883019578415168e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',15,6.43401616355545203501e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',16,5.86824088833465262737e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',17,5.29072414455237886865e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',18,4.70927585544762133951e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',19,4.13175911166534844815e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',20,3.56598383644455034155e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',21,3.01960116980421605648e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',22,2.50000000000000135308e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',23,2.01420704148607028483e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',24,1.56879181065633257867e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',25,1.16977778440511040979e-03,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',26,8.22560942935318651324e-04,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',27,5.3183679838293923623e-04,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',28,3.01536896070458428596e-04,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',29,1.34775647100880973001e-04,NULL);
INSERT INTO "metrics" VALUES('8b4bc5c18f6c','train/lr',30,3.38082112902848819745e-05,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/bits-a-byte',-1,1.64556348700392773842e+00,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','dev/bits-a-byte',2,1.67318022902140128849e+00,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/bits-a-byte',4,1.64556348700392773842e+00,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/kept-in-evaluation',-1,1.0,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','dev/kept-in-evaluation',2,1.0,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/kept-in-evaluation',4,1.0,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/loss',-1,7.40735769271850585937e+00,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','dev/loss',2,7.53167200088501,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/loss',4,7.40735769271850585937e+00,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/perplexity',-1,1.64806589206374610513e+03,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','dev/perplexity',2,1.8662232232960875535e+03,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/perplexity',4,1.64806589206374610513e+03,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/unigram-loss',-1,5.01426978850860383118e+00,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','dev/unigram-loss',2,5.01426978850860383118e+00,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','dev/unigram-loss',4,5.01426978850860383118e+00,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','test/active-parameters',-1,746208.0,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','test/bits-a-byte',-1,1.64063015468377293437e+00,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','test/kept',-1,1.0,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','test/kept-in-evaluation',-1,1.0,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','test/loss',-1,7.3935184478759765625e+00,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','test/parameters',-1,746208.0,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','test/perplexity',-1,1.62541500179096988173e+03,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','test/train-loss',-1,7.40100049972534179687e+00,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','test/unigram-loss',-1,5.00757767633969308462e+00,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','train/loss',-1,7.57854366302490234375e+00,'8590df764775');
INSERT INTO "metrics" VALUES('aeda935e8625','train/loss',1,7.7247486114501953125e+00,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','train/loss',2,7.69318819046020507812e+00,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','train/loss',3,7.65269613265991210937e+00,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','train/loss',4,7.57854366302490234375e+00,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','train/lr',1,5.88235294117647075032e-05,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','train/lr',2,1.1764705882352941501e-04,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','train/lr',3,1.76470588235294129292e-04,NULL);
INSERT INTO "metrics" VALUES('aeda935e8625','train/lr',4,2.35294117647058830021e-04,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/bits-a-byte',-1,1.65653376547880570868e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/bits-a-byte',2,1.68149196732300931778e+00,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/bits-a-byte',4,1.65653376547880570868e+00,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/loss',-1,7.45673942565918,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/loss',2,7.56908655166626,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/loss',4,7.45673942565918,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/perplexity',-1,1.73149318104904841671e+03,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/perplexity',2,1937.36978585096,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/perplexity',4,1.73149318104904841671e+03,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/unigram-loss',-1,5.01426978850860383118e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/unigram-loss',2,5.01426978850860383118e+00,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','dev/unigram-loss',4,5.01426978850860383118e+00,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','test/active-parameters',-1,635232.0,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','test/bits-a-byte',-1,1.65245471290969336841e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','test/loss',-1,7.4468059539794921875e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','test/parameters',-1,635232.0,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','test/perplexity',-1,1.71437858696934881659e+03,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','test/train-loss',-1,7.4362735748291015625e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','test/unigram-loss',-1,5.00757767633969308462e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','train/loss',-1,7.51111602783203125e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('af025e91fbbe','train/loss',1,7.62853002548217773437e+00,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','train/loss',2,7.59565114974975585937e+00,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','train/loss',3,7.5536136627197265625e+00,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','train/loss',4,7.51111602783203125e+00,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','train/lr',1,5.88235294117647075032e-05,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','train/lr',2,1.1764705882352941501e-04,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','train/lr',3,1.76470588235294129292e-04,NULL);
INSERT INTO "metrics" VALUES('af025e91fbbe','train/lr',4,2.35294117647058830021e-04,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/bits-a-byte',-1,1.64556359293452403314e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/bits-a-byte',2,1.67318044088259365587e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/bits-a-byte',4,1.64556359293452403314e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/loss',-1,7.4073581695556640625e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/loss',2,7.53167295455932617187e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/loss',4,7.4073581695556640625e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/perplexity',-1,1648.06667792299,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/perplexity',2,1.86622500306609299513e+03,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/perplexity',4,1648.06667792299,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/unigram-loss',-1,5.01426978850860383118e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/unigram-loss',2,5.01426978850860383118e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','dev/unigram-loss',4,5.01426978850860383118e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','test/active-parameters',-1,635232.0,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','test/bits-a-byte',-1,1.64063036630518888081e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','test/loss',-1,7.39351940155029296875e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','test/parameters',-1,635232.0,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','test/perplexity',-1,1.62541655190824963026e+03,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','test/train-loss',-1,7.40100145339965820312e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','test/unigram-loss',-1,5.00757767633969308462e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','train/loss',-1,7.47854328155517578125e+00,'808a4bb9be9a');
INSERT INTO "metrics" VALUES('bb049321cbaa','train/loss',1,7.62474870681762695312e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','train/loss',2,7.59318637847900390625e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','train/loss',3,7.55269622802734375e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','train/loss',4,7.47854328155517578125e+00,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','train/lr',1,5.88235294117647075032e-05,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','train/lr',2,1.1764705882352941501e-04,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','train/lr',3,1.76470588235294129292e-04,NULL);
INSERT INTO "metrics" VALUES('bb049321cbaa','train/lr',4,2.35294117647058830021e-04,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','dev/accuracy',-1,20.0,'2663b2e54be7');
INSERT INTO "metrics" VALUES('db110e6b6fec','dev/accuracy',10,10.0,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','dev/accuracy',20,20.0,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','dev/accuracy',30,1.33333333333333339256e+01,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','test/accuracy',-1,1.94986072423398333341e+01,'2663b2e54be7');
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',-1,2.24476313591003417968e+00,'2663b2e54be7');
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',1,2.32324194908142089843e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',2,2.42599058151245117187e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',3,2.32676196098327636718e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',4,2.30272960662841796875e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',5,2.39343404769897460937e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',6,2.35644435882568359375e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',7,2.3667240142822265625e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',8,2.32616877555847167968e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',9,2.35701203346252441406e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',10,2.37028598785400390625e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',11,2.32591915130615234375e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',12,2.35028958320617675781e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',13,2.32805323600769042968e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',14,2.35339021682739257812e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',15,2.28552842140197753906e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',16,2.27831029891967773437e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',17,2.31765866279602050781e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',18,2.31784534454345703125e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',19,2.283901214599609375e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',20,2.29904603958129882812e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',21,2.25701785087585449218e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',22,2.25439977645874023437e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',23,2.33081912994384765625e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',24,2.31381058692932128906e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',25,2.27739787101745605468e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',26,2.30447411537170410156e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',27,2.29473161697387695312e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',28,2.28926920890808105468e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',29,2.31784653663635253906e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/loss',30,2.24476313591003417968e+00,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',1,0.0025,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',2,0.005,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',3,0.0075,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',4,0.01,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',5,9.9661917887097148383e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',6,9.86522435289911847622e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',7,9.69846310392954297219e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',8,9.46816320161706151403e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',9,9.1774390570646818821e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',10,0.00883022221559489,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',11,8.43120818934366828001e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',12,7.98579295851393165805e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',13,0.0075,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',14,6.98039883019578415168e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',15,6.43401616355545203501e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',16,5.86824088833465262737e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',17,5.29072414455237886865e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',18,4.70927585544762133951e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',19,4.13175911166534844815e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',20,3.56598383644455034155e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',21,3.01960116980421605648e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',22,2.50000000000000135308e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',23,2.01420704148607028483e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',24,1.56879181065633257867e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',25,1.16977778440511040979e-03,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',26,8.22560942935318651324e-04,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',27,5.3183679838293923623e-04,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',28,3.01536896070458428596e-04,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',29,1.34775647100880973001e-04,NULL);
INSERT INTO "metrics" VALUES('db110e6b6fec','train/lr',30,3.38082112902848819745e-05,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','dev/accuracy',-1,56.25,'997b4fdbbe29');
INSERT INTO "metrics" VALUES('e0f7f08b7b09','dev/accuracy',2,56.25,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','dev/accuracy',4,56.25,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','dev/accuracy',6,56.25,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','dev/loss',-1,8.27155053615570068359e-01,'997b4fdbbe29');
INSERT INTO "metrics" VALUES('e0f7f08b7b09','dev/loss',2,8.27155053615570068359e-01,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','dev/loss',4,8.83983790874481201171e-01,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','dev/loss',6,9.01088476181030273437e-01,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','test/accuracy',-1,50.0,'997b4fdbbe29');
INSERT INTO "metrics" VALUES('e0f7f08b7b09','test/loss',-1,8.78810405731201171875e-01,'997b4fdbbe29');
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/loss',-1,2.99063563346862792968e-01,'997b4fdbbe29');
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/loss',1,3.89387905597686767578e-01,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/loss',2,4.58580553531646728515e-01,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/loss',3,3.11562746763229370117e-01,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/loss',4,2.75030791759490966796e-01,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/loss',5,3.30537378787994384765e-01,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/loss',6,2.99063563346862792968e-01,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/lr',1,0.05,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/lr',2,4.66506350946109746291e-02,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/lr',3,3.75000000000000055511e-02,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/lr',4,0.025,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/lr',5,1.2500000000000005898e-02,NULL);
INSERT INTO "metrics" VALUES('e0f7f08b7b09','train/lr',6,3.3493649053890324832e-03,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','dev/accuracy',-1,3.61111111111111071636e+01,'c8744a2bbad2');
INSERT INTO "metrics" VALUES('eb444ec570fd','dev/accuracy',2,25.0,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','dev/accuracy',4,3.61111111111111071636e+01,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','dev/accuracy',6,3.61111111111111071636e+01,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','dev/accuracy',8,3.61111111111111071636e+01,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','test/accuracy',-1,3.66666666666666642973e+01,'c8744a2bbad2');
INSERT INTO "metrics" VALUES('eb444ec570fd','train/loss',-1,1.79938864707946777343e+00,'c8744a2bbad2');
INSERT INTO "metrics" VALUES('eb444ec570fd','train/loss',1,2.15478849411010742187e+00,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/loss',2,2.41745471954345703125e+00,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/loss',3,2.17992877960205078125e+00,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/loss',4,2.11739492416381835937e+00,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/loss',5,1.63985586166381835937e+00,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/loss',6,1.97868621349334716796e+00,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/loss',7,1.75443255901336669921e+00,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/loss',8,1.79938864707946777343e+00,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/lr',1,0.003,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/lr',2,2.99429204713761842188e-03,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/lr',3,2.79903810567665818284e-03,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/lr',4,2.36036465452656900668e-03,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/lr',5,1.76047226650039544126e-03,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/lr',6,1.11177143234621883527e-03,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/lr',7,0.000535818585470191,NULL);
INSERT INTO "metrics" VALUES('eb444ec570fd','train/lr',8,1.40538319445025094338e-04,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','attention-map/peak',-1,1.21578855067491531372e+00,'21232f47e436');
INSERT INTO "metrics" VALUES('fd8845166f09','dev/accuracy',-1,56.25,'21232f47e436');
INSERT INTO "metrics" VALUES('fd8845166f09','dev/accuracy',2,56.25,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','dev/accuracy',4,56.25,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','dev/accuracy',6,56.25,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','dev/loss',-1,8.32231640815734863281e-01,'21232f47e436');
INSERT INTO "metrics" VALUES('fd8845166f09','dev/loss',2,8.32231640815734863281e-01,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','dev/loss',4,8.8892796635627746582e-01,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','dev/loss',6,9.04210925102233886718e-01,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','test/accuracy',-1,50.0,'21232f47e436');
INSERT INTO "metrics" VALUES('fd8845166f09','test/loss',-1,8.80233436822891235351e-01,'21232f47e436');
INSERT INTO "metrics" VALUES('fd8845166f09','train/loss',-1,2.99975752830505371093e-01,'21232f47e436');
INSERT INTO "metrics" VALUES('fd8845166f09','train/loss',1,3.95128965377807617187e-01,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/loss',2,4.74339902400970458984e-01,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/loss',3,3.36874276399612426757e-01,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/loss',4,2.79939353466033935546e-01,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/loss',5,3.42181146144866943359e-01,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/loss',6,2.99975752830505371093e-01,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/lr',1,0.05,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/lr',2,4.66506350946109746291e-02,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/lr',3,3.75000000000000055511e-02,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/lr',4,0.025,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/lr',5,1.2500000000000005898e-02,NULL);
INSERT INTO "metrics" VALUES('fd8845166f09','train/lr',6,3.3493649053890324832e-03,NULL);
CREATE TABLE submissions (
	id VARCHAR(32) NOT NULL, 
	executor TEXT NOT NULL, 
	folder TEXT NOT NULL, 
	job_id TEXT, 
	host TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	ended_at VARCHAR(32), username TEXT, 
	CONSTRAINT pk_submissions PRIMARY KEY (id)
);
INSERT INTO "submissions" VALUES('726ca28b35584672be2fc00d1b5b4a69','local','/home/me/bench/runs/.submitit/726ca28b35584672be2fc00d1b5b4a69','11722,11724','laptop',11576,'ended','2026-11-23T10:40:11.513+00:00','2026-11-23T10:40:35.396+00:00','me');
INSERT INTO "submissions" VALUES('2401cd58dea44e3eb7558740fe747488','local','/home/me/bench/runs/.submitit/2401cd58dea44e3eb7558740fe747488','11985,11986','laptop',11957,'ended','2026-11-23T10:40:42.727+00:00','2026-11-23T10:40:52.806+00:00','me');
INSERT INTO "submissions" VALUES('349b7c0e43c8470e85737e432f236284','local','/home/me/bench/runs/.submitit/349b7c0e43c8470e85737e432f236284','12153,12154','laptop',12060,'ended','2026-11-23T10:40:57.602+00:00','2026-11-23T10:41:32.651+00:00','me');
INSERT INTO "submissions" VALUES('dc5666ee4433462eb7938751687728a8','local','/home/me/bench/runs/.submitit/dc5666ee4433462eb7938751687728a8','12518,12520','laptop',12420,'ended','2026-11-23T10:41:32.679+00:00','2026-11-23T10:41:50.715+00:00','me');
INSERT INTO "submissions" VALUES('f2dee99441d04ab0b41d18fa336f65e3','local','/home/me/bench/runs/.submitit/f2dee99441d04ab0b41d18fa336f65e3','12715,12716','laptop',12675,'ended','2026-11-23T10:41:57.991+00:00','2026-11-23T10:42:08.705+00:00','me');
INSERT INTO "submissions" VALUES('e92ee12b1db44df6a5998b61b93b8e9d','local','/home/me/bench/runs/.submitit/e92ee12b1db44df6a5998b61b93b8e9d','12816','laptop',12792,'ended','2026-11-23T10:42:16.849+00:00','2026-11-23T10:42:47.865+00:00','me');
INSERT INTO "submissions" VALUES('b9350f0ff75746d1b7b142f45a7212be','local','/home/me/bench/runs/.submitit/b9350f0ff75746d1b7b142f45a7212be','13071','laptop',13024,'ended','2026-11-23T10:42:47.900+00:00','2026-11-23T10:42:58.457+00:00','me');
INSERT INTO "submissions" VALUES('a244300052954b4fa32cef11e1fc5fd0','local','/home/me/bench/runs/.submitit/a244300052954b4fa32cef11e1fc5fd0','13320','laptop',13167,'ended','2026-11-23T10:43:11.704+00:00','2026-11-23T10:43:30.939+00:00','me');
INSERT INTO "submissions" VALUES('5e190ae1f0604e2ca502980fb4793f57','local','/home/me/bench/runs/.submitit/5e190ae1f0604e2ca502980fb4793f57','13686','laptop',13585,'ended','2026-11-23T10:43:49.891+00:00','2026-11-23T10:44:04.450+00:00','me');
INSERT INTO "submissions" VALUES('3d9dfb2fbb8f4e72b12d5a631f667709','local','/home/me/bench/runs/.submitit/3d9dfb2fbb8f4e72b12d5a631f667709','18644,18645','laptop',18557,'ended','2026-11-23T10:48:12.447+00:00','2026-11-23T10:48:21.275+00:00','me');
INSERT INTO "submissions" VALUES('5de86d3f0cbe4f318edabdeddffd1925','local','/home/me/bench/runs/.submitit/5de86d3f0cbe4f318edabdeddffd1925','19009','laptop',18915,'ended','2026-11-23T10:48:26.339+00:00','2026-11-23T10:48:42.534+00:00','me');
CREATE TABLE "trials" (
	id VARCHAR(12) NOT NULL, 
	config_id VARCHAR(12) NOT NULL, 
	seed INTEGER NOT NULL, 
	weights TEXT, 
	state VARCHAR(12) NOT NULL, 
	reason TEXT, 
	submission_id VARCHAR(32), 
	created_at VARCHAR(32) NOT NULL, 
	updated_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_trials PRIMARY KEY (id), 
	CONSTRAINT fk_trials_submission_id FOREIGN KEY(submission_id) REFERENCES submissions (id), 
	CONSTRAINT fk_trials_config_id FOREIGN KEY(config_id) REFERENCES configs (id)
)
 WITHOUT ROWID

;
INSERT INTO "trials" VALUES('07bdfbc0a08e','ebacd1f72637',2,NULL,'queued',NULL,NULL,'2026-11-23T10:48:56.092+00:00','2026-11-23T10:48:56.092+00:00');
INSERT INTO "trials" VALUES('27fb30220a07','7876b8482b91',1,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:58.620+00:00','2026-11-23T10:41:12.746+00:00');
INSERT INTO "trials" VALUES('2b862a69bfe7','47848aedf313',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:28.394+00:00','2026-11-23T10:40:29.948+00:00');
INSERT INTO "trials" VALUES('2ed94e0cd8ee','8590df764775',1,NULL,'succeeded',NULL,NULL,'2026-11-23T10:41:59.280+00:00','2026-11-23T10:42:05.799+00:00');
INSERT INTO "trials" VALUES('31d10206d3e6','e6363c1276d5',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:43:13.195+00:00','2026-11-23T10:43:26.647+00:00');
INSERT INTO "trials" VALUES('377ada540662','80ab0d7d692e',0,NULL,'failed','RuntimeError: the plug-in is broken',NULL,'2026-11-23T10:42:49.239+00:00','2026-11-23T10:42:55.934+00:00');
INSERT INTO "trials" VALUES('4e2852ef74c8','c8744a2bbad2',1,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:43.584+00:00','2026-11-23T10:40:50.315+00:00');
INSERT INTO "trials" VALUES('50582c8c14d8','2663b2e54be7',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:26.507+00:00','2026-11-23T10:40:28.306+00:00');
INSERT INTO "trials" VALUES('5500cb5ec6ec','47848aedf313',2,NULL,'queued',NULL,NULL,'2026-11-23T10:48:56.092+00:00','2026-11-23T10:48:56.092+00:00');
INSERT INTO "trials" VALUES('5757005ecf10','85c5d5a76df1',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:42:17.927+00:00','2026-11-23T10:42:29.962+00:00');
INSERT INTO "trials" VALUES('5ce51fa9dee9','2663b2e54be7',2,NULL,'queued',NULL,NULL,'2026-11-23T10:48:56.092+00:00','2026-11-23T10:48:56.092+00:00');
INSERT INTO "trials" VALUES('5df087724faf','ebacd1f72637',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:13.087+00:00','2026-11-23T10:40:26.424+00:00');
INSERT INTO "trials" VALUES('5f8ec7625f84','cb94a7f9aad2',0,NULL,'cancelled','cancelled by the user',NULL,'2026-11-23T10:48:27.342+00:00','2026-11-23T10:48:40.699+00:00');
INSERT INTO "trials" VALUES('6ed11fc605a8','4cc00f0ae2d6',0,NULL,'cancelled','cancelled by the user',NULL,'2026-11-23T10:43:51.205+00:00','2026-11-23T10:44:00.906+00:00');
INSERT INTO "trials" VALUES('7182ac0b540a','47848aedf313',1,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:29.342+00:00','2026-11-23T10:40:31.310+00:00');
INSERT INTO "trials" VALUES('8541276a6dba','7876b8482b91',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:58.543+00:00','2026-11-23T10:41:13.295+00:00');
INSERT INTO "trials" VALUES('8b4bc5c18f6c','ebacd1f72637',1,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:13.356+00:00','2026-11-23T10:40:27.111+00:00');
INSERT INTO "trials" VALUES('aeda935e8625','8590df764775',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:41:59.047+00:00','2026-11-23T10:42:05.497+00:00');
INSERT INTO "trials" VALUES('af025e91fbbe','808a4bb9be9a',1,NULL,'succeeded',NULL,NULL,'2026-11-23T10:41:34.620+00:00','2026-11-23T10:41:46.402+00:00');
INSERT INTO "trials" VALUES('bb049321cbaa','808a4bb9be9a',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:41:34.513+00:00','2026-11-23T10:41:46.408+00:00');
INSERT INTO "trials" VALUES('db110e6b6fec','2663b2e54be7',1,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:27.199+00:00','2026-11-23T10:40:29.246+00:00');
INSERT INTO "trials" VALUES('e0f7f08b7b09','997b4fdbbe29',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:48:13.687+00:00','2026-11-23T10:48:18.311+00:00');
INSERT INTO "trials" VALUES('eb444ec570fd','c8744a2bbad2',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:40:43.509+00:00','2026-11-23T10:40:50.183+00:00');
INSERT INTO "trials" VALUES('fd8845166f09','21232f47e436',0,NULL,'succeeded',NULL,NULL,'2026-11-23T10:48:13.772+00:00','2026-11-23T10:48:18.887+00:00');
CREATE INDEX ix_submissions_state ON submissions (state);
CREATE INDEX ix_memberships_trial_id ON memberships (trial_id);
CREATE INDEX ix_trials_state ON trials (state);
CREATE INDEX ix_trials_config_id_state ON trials (config_id, state);
CREATE INDEX ix_trials_submission_id ON trials (submission_id) WHERE submission_id IS NOT NULL;
CREATE INDEX ix_metrics_final ON metrics (name, config_id, trial_id, value) WHERE step = -1;
CREATE VIEW v_trials AS SELECT trials.id AS trial_id, trials.config_id, configs.task, configs.data, configs.model, configs.regularizer, CASE WHEN json_type(configs.params, '$.ratio') IN ('integer', 'real') THEN json_extract(configs.params, '$.ratio') END AS ratio, CASE WHEN json_type(configs.params, '$.window') IN ('integer', 'real') THEN json_extract(configs.params, '$.window') END AS window_size, configs.schedule, configs.align, configs.preset, configs.params, configs.overrides, trials.seed, trials.state , trials.reason, (SELECT count(*) FROM attempts WHERE attempts.trial_id = trials.id) AS attempts, (SELECT coalesce(sum(max(0.0, (julianday(coalesce(attempts.ended_at, 'now')) - julianday(attempts.started_at)) * 24) * coalesce(attempts.gpus, 0)), 0.0) FROM attempts WHERE attempts.trial_id = trials.id) AS gpu_hours, (SELECT coalesce(sum(max(0.0, (julianday(coalesce(attempts.ended_at, 'now')) - julianday(attempts.started_at)) * 24) * coalesce(attempts.cpus, 1)), 0.0) FROM attempts WHERE attempts.trial_id = trials.id) AS cpu_hours, (SELECT coalesce(sum(attempts.waited_seconds), 0.0) / 3600 FROM attempts WHERE attempts.trial_id = trials.id) AS waited_hours, (SELECT max(attempts.peak_memory_bytes) FROM attempts WHERE attempts.trial_id = trials.id) AS peak_memory_bytes, (SELECT min(attempts.started_at) FROM attempts WHERE attempts.trial_id = trials.id) AS started_at, (SELECT max(attempts.ended_at) FROM attempts WHERE attempts.trial_id = trials.id) AS ended_at, trials.created_at, trials.updated_at FROM trials JOIN configs ON configs.id = trials.config_id;
CREATE VIEW v_results AS SELECT trials.id AS trial_id, trials.config_id, configs.task, configs.data, configs.model, configs.regularizer, CASE WHEN json_type(configs.params, '$.ratio') IN ('integer', 'real') THEN json_extract(configs.params, '$.ratio') END AS ratio, CASE WHEN json_type(configs.params, '$.window') IN ('integer', 'real') THEN json_extract(configs.params, '$.window') END AS window_size, configs.schedule, configs.align, configs.preset, configs.params, configs.overrides, trials.seed, trials.state , CASE WHEN substr(metrics.name, 1, 5) = 'test/' THEN substr(metrics.name, 6) ELSE metrics.name END AS metric, metrics.value FROM metrics JOIN trials ON trials.id = metrics.trial_id JOIN configs ON configs.id = trials.config_id WHERE metrics.step = -1;
CREATE VIEW v_curves AS SELECT trials.id AS trial_id, trials.config_id, configs.task, configs.data, configs.model, configs.regularizer, CASE WHEN json_type(configs.params, '$.ratio') IN ('integer', 'real') THEN json_extract(configs.params, '$.ratio') END AS ratio, CASE WHEN json_type(configs.params, '$.window') IN ('integer', 'real') THEN json_extract(configs.params, '$.window') END AS window_size, configs.schedule, configs.align, configs.preset, configs.params, configs.overrides, trials.seed, trials.state , CASE WHEN substr(metrics.name, 1, 5) = 'test/' THEN substr(metrics.name, 6) ELSE metrics.name END AS metric, metrics.step, metrics.value FROM metrics JOIN trials ON trials.id = metrics.trial_id JOIN configs ON configs.id = trials.config_id WHERE metrics.step >= 0;
COMMIT;
