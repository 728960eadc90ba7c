"""Layers of py-faster-rcnn's train and test nets, written anew, under the names that the nets give them."""
