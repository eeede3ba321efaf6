"""How vox-tiny is trained: texts, speech from the teacher, the language model, its small file."""
