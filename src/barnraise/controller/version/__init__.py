"""What the parameter server does with updates, stage by stage; `way` has the lists."""
