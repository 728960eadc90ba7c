"""The layer that reads images with boxes, under the name that py-faster-rcnn's nets give it."""
