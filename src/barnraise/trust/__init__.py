"""What proves to somebody who was not there what happened: signatures of contributions."""
