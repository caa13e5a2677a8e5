"""TensorBoard's tab "PPO Doctor": the runs below its log directory, judged while somebody looks at the tab."""
